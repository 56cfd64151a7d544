"""The list of mutations fits the code, and the tests kill a sample of it; `make mutate` tries them all."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutations import run_killers
from tests.mutations.kill_mutation import INVALID, KILLED, MutatedCopy, Options
from tests.mutations.known_mutations import Mutation, known_mutations
from tests.mutations.run_killers import DEATHS, SLOW, TESTS
from tests.scenarios.model import tree_scenarios
from tests.scenarios.model.ring_scenarios import RINGS
from tests.scenarios.model.scot_scenarios import SCOTS
from tests.scenarios.model.search_states import Search
from tests.scenarios.model.tree_scenarios import TREES

ROOT = Path(__file__).parents[2]
KNOWN = {mutation.name: mutation for mutation in known_mutations()}
QUICK = Options(search_seconds=0.0, is_thorough=False)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> MutatedCopy:
    """Return a copy of the code to mutate."""
    return MutatedCopy(ROOT, tmp_path_factory.mktemp("mutated") / "copy")


def test_every_mutation_fits_the_code_as_it_is() -> None:
    """Its old text occurs exactly once, and the new one compiles."""
    errors = [error for mutation in KNOWN.values() if (error := mutation.error(ROOT))]
    assert not errors, "\n".join(errors)


def test_mutations_have_unique_names_and_say_what_they_remove() -> None:
    """There are at least 80, for both kinds of overlay, and no two make the same change."""
    mutations = known_mutations()
    assert len(mutations) >= 80
    assert not [name for name, count in Counter(one.name for one in mutations).items() if count > 1]
    assert len({(one.file, one.old, one.new) for one in mutations}) == len(mutations)
    assert {one.overlay for one in mutations} == {"tree", "ring", "scot", "both", "agents"}
    assert all(one.removes for one in mutations)


def test_killers_name_tests_and_scenarios_that_exist() -> None:
    """A killer that was renamed would kill nothing."""
    for name in (name for names in (*TESTS.values(), (DEATHS,)) for name in names):
        file, _, test = name.partition("::")
        assert (f"def {test}(" if test else "def test_") in (ROOT / file).read_text(encoding="utf-8"), name
    assert {scenario.name for scenario in TREES + RINGS + SCOTS} >= SLOW


@pytest.mark.parametrize("fault", ["", "c never hears of it"])
def test_scenarios_of_the_model_kill_by_what_they_find(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On correct code they find nothing; a mutation that none finds is left to the checks behind."""
    scenario = next(each for each in TREES if each.name == "tree_early_end")
    monkeypatch.setattr(tree_scenarios, "TREES", [scenario])
    search = Search.run
    monkeypatch.setattr(Search, "run", lambda self: replace(search(self), fault=fault))
    failed = run_killers._failed_scenario(("tree",), is_slow=False)
    assert failed == ({"killer": "model: tree_early_end", "text": fault} if fault else {"killer": ""})


@pytest.mark.parametrize(
    ("name", "killer"),
    [
        ("tree_hold_nothing", "scenarios/test_rare_orders_tree.py"),
        ("ring_prepared_before_users_came", "scenarios/test_rare_orders_ring.py"),
        ("controller_refusal_ignored", "controller/execute/test_transition.py"),
    ],
)
def test_a_missing_safeguard_is_noticed(copy: MutatedCopy, name: str, killer: str) -> None:
    """Afterwards the copy is as it was before."""
    verdict = copy.judge(KNOWN[name], QUICK)
    assert verdict.outcome == KILLED
    assert verdict.killer.startswith(killer)
    assert (copy.folder / KNOWN[name].file).read_text() == (ROOT / KNOWN[name].file).read_text()


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("nothing that is there", "", "occurs 0 times"),
        ("return", "pass", "times in controller/execute/transition.py, not once"),
        ("class SendCommand:", "class:", "not valid"),
        ("import msgspec", "import msgspec_is_not_there", "msgspec_is_not_there"),
        ("import msgspec", "import os; os._exit(1)", "the process died"),
    ],
)
def test_a_mutation_that_cannot_run_does_not_count_as_killed(copy: MutatedCopy, old: str, new: str, text: str) -> None:
    """The table would suggest that a test had noticed it."""
    mutation = Mutation("broken", "controller/execute/transition.py", "both", "nothing", old, new)
    verdict = copy.judge(mutation, QUICK)
    assert verdict.outcome == INVALID
    assert text in verdict.text
