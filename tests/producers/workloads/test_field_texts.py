"""Texts that give several fields: read, refused with what is wrong, and made from fields as recorded."""

from typing import Any

import pytest

from regraft.producers.workloads.field_texts import EMULATOR_TEXTS, WORKLOAD_TEXTS, TextForm
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.settings.run_settings import SettingsError, load_settings

FORMS = {**EMULATOR_TEXTS, **WORKLOAD_TEXTS}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_an_example_gives_every_field_and_is_made_from_them(form: TextForm) -> None:
    """What an error shows can be written so, and a recording of an earlier version keeps its values."""
    found = form.fields(form.example)
    assert list(found) == form.field_names()
    assert form.text(found) == form.example
    assert form.text({}) is None


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("bursts", "every", "it is written like every 30"),
        ("bursts", "every 30 every 40", "it is written like"),
        ("bursts", "for 30", "with every at least"),
        ("bursts", "every 30 until 4", "it is written like"),
        ("bursts", "every soon", "soon after every is not a number, as in every 30"),
        ("bursts", "every 30 times 2.5", "2.5 after times is not a number"),
        ("regime_change", "interests", "with at or every at least"),
        ("regime_change", "", "it is written like interests at 90"),
        ("random_outages", "kinds death", "with every at least"),
    ],
)
def test_a_text_that_cannot_be_read_is_a_error(name: str, text: str, why: str) -> None:
    """The sentence shows an example with all words."""
    with pytest.raises(ValueError, match=why):
        FORMS[name].fields(text)
    section: dict[str, Any] = {name: text} if name in EMULATOR_TEXTS else {"workload": {name: text}}
    with pytest.raises(SettingsError) as caught:
        load_settings({"emulator": section})
    assert any(f"{name} is {text!r}: " in error for error in caught.value.errors)


def test_texts_reach_the_workload_and_the_outages() -> None:
    """What a text does not say keeps its default."""
    texts = {"bursts": "every 30 times 3", "regime_change": "crowd at 60 every 300"}
    emulator = load_settings({"emulator": {"random_outages": "every 20 kinds cut", "workload": texts}}).emulator
    assert (emulator.chaos_every_s, emulator.chaos_for_s, emulator.chaos_kinds) == (20.0, 20.0, ("cut",))
    workload, usual = emulator.workload, WorkloadSettings()
    assert (workload.burst_every_s, workload.burst_count, workload.burst_s) == (30.0, 3, usual.burst_s)
    assert (workload.regime_change_kind, workload.regime_change_s, workload.regime_change_every_s) == ("crowd", 60, 300)
    with pytest.raises(SettingsError, match="regime_change_kind is 'storm': must be one of"):
        load_settings({"emulator": {"workload": {"regime_change": "storm at 5"}}})
