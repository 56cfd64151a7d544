import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import regraft.demo.demo_flags
import regraft.demo.run_demo
from regraft.cli import app, main
from regraft.infra.process.stack_error import StackError
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.run_records.summary import summarise
from regraft.settings.place_demo import check_brokers, ensure_inventory
from regraft.settings.run_settings import Settings, SettingsError, load_settings
from tests.regraft.canned_run import empty_run, small_run

RUNNER = CliRunner()
COMMANDS = ("demo", "run", "doctor", "topics", "settings", "stage")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    """--help works without any server, file or setting."""
    answer = RUNNER.invoke(app, [command, "--help"])
    assert answer.exit_code == 0
    assert "Usage" in answer.stdout


def test_the_overview_names_all_commands_and_where_to_start() -> None:
    """The overview alone is enough to begin."""
    text = RUNNER.invoke(app, ["--help"]).stdout
    for wanted in (*COMMANDS, "Start here", "REGRAFT_SETTINGS"):
        assert wanted in text


def test_the_overview_groups_commands_and_begins_with_those_to_start_with() -> None:
    """The demo is not hidden among twenty commands in alphabetical or source order."""
    text = RUNNER.invoke(app, ["--help"]).stdout
    panels = ["─ Start here", "─ Operate", "─ Analyse", "─ On several machines"]
    assert sorted(panels, key=text.index) == panels
    assert text.index("─ Start here") < text.index(" demo ") < text.index(" run ") < text.index("─ Operate")


def test_the_version_is_that_of_the_package() -> None:
    """--version answers without a command."""
    assert RUNNER.invoke(app, ["--version"]).stdout == f"regraft {regraft.__version__}\n"
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["version"] == regraft.__version__


def test_the_shell_completes_commands() -> None:
    """``--install-completion`` makes the shell ask for what may follow."""
    environment = {"_REGRAFT_COMPLETE": "complete_bash", "COMP_WORDS": "regraft pl", "COMP_CWORD": "1"}
    assert RUNNER.invoke(app, [], prog_name="regraft", env=environment).stdout.split() == ["plans"]


def test_topics_are_shown_with_their_namespace() -> None:
    """The table comes from schemas/topics.py and needs no Kafka."""
    answer = RUNNER.invoke(app, ["topics", "--json", "--set", "kafka.namespace=lab"])
    names = [row["topic"] for row in json.loads(answer.stdout)["topics"]]
    assert "lab.telemetry" in names
    assert all(name.startswith("lab.") for name in names)
    assert "regraft.plans" in RUNNER.invoke(app, ["topics"]).stdout


def test_doctor_gives_its_findings_as_json() -> None:
    """Every finding has a name and a state, and whatever is not ok says what to do."""
    findings = json.loads(RUNNER.invoke(app, ["doctor", "--json"]).stdout)
    assert {"python", "java", "valkey"} <= {each["name"] for each in findings}
    assert all(each["to_do"] for each in findings if each["status"] != "ok")


def test_wrong_settings_raise_before_anything_is_started(tmp_path: Path) -> None:
    """A demo with wrong settings leaves no trace."""
    out = tmp_path / "out"
    answer = RUNNER.invoke(app, ["demo", "--out", str(out), "--duration", "1", "--set", "demo.degree_max=1"])
    assert isinstance(answer.exception, SettingsError)
    assert len(answer.exception.errors) == 2
    assert not out.exists()


def test_a_shift_of_interests_after_the_end_is_refused(tmp_path: Path) -> None:
    """The demo could not show what it is meant to show."""
    arguments = ["demo", "--out", str(tmp_path), "--quick", "--set", "emulator.workload.regime_change=interests at 100"]
    answer = RUNNER.invoke(app, arguments)
    assert isinstance(answer.exception, SettingsError)
    assert "the demo runs 75 s" in answer.exception.errors[0]


def test_program_lists_all_errors_and_ends_with_2() -> None:
    """From a shell, each error is one line on standard error, without a traceback."""
    wrong = ["--set", "run.seed=x", "--set", "controller.planner=best"]
    command = [sys.executable, "-m", "regraft", "stage", "control", *wrong]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    lines = answer.stderr.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("Invalid setting: ") for line in lines)


def test_program_prints_names_that_its_output_cannot_encode() -> None:
    """As in a locale without UTF-8: the letters are escaped, and the exit code is that of the command."""
    command = [sys.executable, "-m", "regraft", "settings", "--set", "run.directory=/tmp/\N{SNOWMAN}"]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert 'directory = "/tmp/\\u2603"' in answer.stdout


def test_program_ends_with_2_on_a_wrong_call() -> None:
    """An unknown flag is reported as such."""
    command = [sys.executable, "-m", "regraft", "demo", "--fast"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert "--fast" in answer.stderr


def test_a_successful_demo_prints_the_summary_and_ends_with_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """With --json standard output is the summary and nothing else."""
    monkeypatch.setattr(regraft.demo.run_demo, "run_demo", lambda *_: summarise(small_run()))
    answer = RUNNER.invoke(app, ["demo", "--json"])
    assert answer.exit_code == 0
    assert json.loads(answer.stdout)["seed"] == 7
    assert "cost per second" in RUNNER.invoke(app, ["demo"]).stdout


def test_an_unsuccessful_demo_ends_with_1_and_the_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in which nothing happened does not pass."""
    monkeypatch.setattr(regraft.demo.run_demo, "run_demo", lambda *_: summarise(empty_run()))
    answer = RUNNER.invoke(app, ["demo"])
    assert answer.exit_code == 1
    assert answer.stderr.count("Failed") == 6


def test_demo_stopped_by_ctrl_c_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is not a failure with a traceback."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(regraft.demo.run_demo, "run_demo", interrupted)
    assert RUNNER.invoke(app, ["demo"]).exit_code == 130


def test_a_second_demo_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    """It names the other one and what to do."""
    from regraft.infra.process.hold_lock import hold_lock

    with hold_lock(tmp_path / "demo.lock"):
        answer = RUNNER.invoke(app, ["demo", "--out", str(tmp_path)])
    assert isinstance(answer.exception, StackError)
    assert "--out" in str(answer.exception)


@pytest.mark.parametrize("command", ["demo", "run", "stage control"])
def test_an_unknown_planner_is_answered_with_the_known_ones(command: str, tmp_path: Path) -> None:
    """For an acting or a shadow planner, a wrong name ends before anything is started and lists the valid ones."""
    where = ["--out", str(tmp_path / "out")] if command == "demo" else []
    answer = RUNNER.invoke(app, [*command.split(), "--planner", "best", "--shadow", "worst", *where])
    assert isinstance(answer.exception, SettingsError)
    errors = "\n".join(answer.exception.errors)
    assert "planner 'best' is unknown: use one of" in errors
    assert "shadow planner 'worst' is unknown: use one of" in errors
    assert errors.count("swap_links_lmst") == 2


@pytest.mark.parametrize(
    ("flags", "creates", "dry_run", "acts_on_deaths"),
    [
        ([], False, True, False),
        (["--create-topics", "--act-on-deaths"], True, True, True),
        (["--act"], False, False, False),
        (["--emulate"], True, False, False),
        (["--emulate", "--dry-run"], True, True, False),
    ],
)
def test_a_run_changes_nothing_in_kafka_or_the_overlay_unless_asked_to(
    flags: list[str],
    creates: bool,
    dry_run: bool,
    acts_on_deaths: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Topics of a cluster are created and plans executed only on request; emulated brokers are the product's."""
    seen: list[tuple[bool, bool, bool]] = []

    def note(settings: Settings, _console: object, *, emulate: bool, creates_topics: bool, **_: object) -> None:
        controller = settings.controller
        seen.append((emulate or creates_topics, controller.dry_run, controller.act_on_deaths))

    monkeypatch.setattr("regraft.stages.run_loop.run_loop", note)
    shutil.copy(Path(__file__).parents[2] / "infra" / "fleet" / "inventory.json", tmp_path / "inventory.json")
    assert RUNNER.invoke(app, ["run", *flags, "--set", f"run.directory={tmp_path}"]).exit_code == 0
    assert seen == [(creates, dry_run, acts_on_deaths)]


def test_the_demo_shadows_the_papers_planner_by_default() -> None:
    """A chosen shadow stays; no planner is its own shadow."""
    assert _controller_of({})["shadow_planners"] == ["swap_links_ci", "swap_links_cost"]
    assert _controller_of({"controller": {"planner": "swap_links_ci"}})["shadow_planners"] == ["swap_links_cost"]
    chosen = {"controller": {"shadow_planners": ["swap_links_lmit"], "horizon_lifetimes": 7.0}}
    assert _controller_of(chosen) == chosen["controller"] | {"dry_run": False}
    assert "horizon_lifetimes" not in _controller_of({})


def test_the_chord_scenario_has_its_own_planners_by_default() -> None:
    """Planners of a tree cannot decide on a ring, so the scenario names those that can."""
    chord = {"demo": {"scenario": "chord"}}
    merged = _controller_of(chord)
    assert merged["planner"] == "place_users_dynatops+reassign_ids_assignment"
    assert merged["planner"] not in merged["shadow_planners"]
    assert merged["shadow_planners"]
    controller = _controller_of(chord | {"controller": {"planner": "reassign_ids_assignment"}})
    assert controller["planner"] == "reassign_ids_assignment"
    assert "reassign_ids_assignment" not in controller["shadow_planners"]
    flags = regraft.demo.demo_flags.demo_flags(chord, load_settings(chord))
    assert "workload" not in flags.get("emulator", {})
    assert (
        flags["planners"]["reassign_ids_assignment"] == flags["planners"]["reassign_ids_ssbr"] == {"ring_free_s": 60.0}
    )
    users = {"user_cluster_brokers": 30}
    own = chord | {"planners": {"place_users_dynatops": users}}
    assert regraft.demo.demo_flags.demo_flags(own, load_settings(own))["planners"]["place_users_dynatops"] == users | {
        "user_utility_min": 0.2
    }


def test_the_outage_scenario_lets_a_site_fail_in_the_middle_third_by_default() -> None:
    """It needs no shift of interests."""
    outage = {"demo": {"scenario": "outage", "running_s": 90.0}}
    flags = regraft.demo.demo_flags.demo_flags(outage, load_settings(outage))
    assert flags["emulator"] == {"outages": ["death site:4 at 30 for 30"]}
    own = outage | {"emulator": {"outages": ["cut b00,b01 at 1 for 2"]}}
    assert regraft.demo.demo_flags.demo_flags(own, load_settings(own))["emulator"] == own["emulator"]


def test_the_scot_scenario_has_bursts_by_default() -> None:
    """There are three, the last drained before the end, and a number of brokers that forms equal clusters."""
    scot = {"demo": {"scenario": "scot", "running_s": 78.0}}
    flags = regraft.demo.demo_flags.demo_flags(scot, load_settings(scot))
    assert flags["emulator"]["workload"]["bursts"] == "every 20 for 4 by 5 times 3"
    workload = load_settings(flags).emulator.workload
    assert (workload.burst_every_s, workload.burst_s, workload.burst_count) == (20.0, 4.0, 3)
    assert (flags["emulator"]["detours"], flags["controller"]["planner"]) == (
        "alternate",
        "exchange_places_scot+link_regions_scot+move_publishers_scot+relieve_links_scot",
    )
    own = scot | {"emulator": {"workload": {"bursts": "every 30"}}}
    assert regraft.demo.demo_flags.demo_flags(own, load_settings(own))["emulator"]["workload"]["bursts"] == "every 30"
    with pytest.raises(SettingsError, match="brokers is 42: with scenario scot a multiple of 4"):
        load_settings({"demo": {"scenario": "scot", "brokers": 42}})


def test_the_nats_scenario_has_real_brokers_whose_clients_have_agents(tmp_path: Path) -> None:
    """Fewer brokers, planners of links and of clients, and a death in the last third; chosen settings stay."""
    chosen = {"demo": {"scenario": "nats", "running_s": 90.0}, "run": {"directory": str(tmp_path)}}
    flags = regraft.demo.demo_flags.demo_flags(chosen, load_settings(chosen))
    assert flags["demo"]["brokers"] == 20
    assert flags["emulator"]["brokers"] == "nats"
    assert flags["emulator"]["outages"] == ["death site:1 at 60 for 15"]
    assert (flags["controller"]["planner"], flags["controller"]["shadow_planners"]) == (
        "swap_links_cost+place_clients_cost",
        ["swap_links_cost"],
    )
    assert ensure_inventory(load_settings(flags)).clients_stay
    own = chosen | {"emulator": {"workload": {"publisher_count": 7}}}
    assert regraft.demo.demo_flags.demo_flags(own, load_settings(own))["emulator"]["workload"]["publisher_count"] == 7


def test_the_scot_scenario_runs_next_to_real_brokers(tmp_path: Path) -> None:
    """Clients stay, so that only slots and links change; scenarios that nodes cannot run are refused."""
    chosen = {
        "demo": {"scenario": "scot"}, "emulator": {"brokers": "nats"}, "run": {"directory": str(tmp_path)},
    }  # fmt: skip
    flags = regraft.demo.demo_flags.demo_flags(chosen, load_settings(chosen))
    assert (flags["demo"]["brokers"], flags["controller"]["planner"]) == (12, "exchange_places_scot+link_regions_scot")
    inventory = ensure_inventory(check_brokers(load_settings(flags)))
    assert inventory.clients_stay
    assert isinstance(inventory.bootstrap, ScotConfiguration)
    for scenario in ("chord", "mincost"):
        with pytest.raises(SettingsError, match=f"emulator.brokers is 'nats', but the scenario is {scenario}"):
            check_brokers(load_settings(chosen | {"demo": {"scenario": scenario}}))


def test_an_unknown_scenario_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    """This is before anything is started."""
    answer = RUNNER.invoke(app, ["demo", "--scenario", "tapestry", "--out", str(tmp_path / "out")])
    assert isinstance(answer.exception, SettingsError)
    errors = "\n".join(answer.exception.errors)
    assert "scenario is 'tapestry': must be one of stocks, outage, nats, mqtt, amqp, chord" in errors


def _controller_of(flags: dict[str, dict[str, object]]) -> dict[str, object]:
    merged = regraft.demo.demo_flags.demo_flags(flags, load_settings(flags))
    return dict(merged["controller"])


@pytest.mark.parametrize(
    "words",
    [
        ["recording", "none.avro"],
        ["replay", "none.avro", "--bootstrap", "127.0.0.1:1"],
        ["backtest", "none.avro", "--planner", "swap_links_ci"],
        ["alerts", "rules", "none.toml", "none.avro"],
        ["alerts", "rules", "--set", "alerts.rules_file=none.toml"],
        ["settings", "--settings", "none.toml"],
        ["settings", "--set", "kafka.bootstrap=kafka"],
        ["members", "maintain", "b01", "--reason", "trial", "--for", "-1"],
        ["plans", "approve"],
    ],
    ids=lambda words: " ".join(words[:3]),
)
def test_a_call_that_names_what_is_not_there_ends_with_2(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The same mistake has the same exit code in every command; 1 is for what went wrong although the call is right."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["regraft", *words])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
