"""Files of rules: all errors are reported at once, each with its rule and line."""

from pathlib import Path

import pytest

from regraft.alerts.read_rules import DEFAULT_RULES, RulesError, load_rules, parse_rules
from regraft.alerts.rule_kinds import LevelRule
from regraft.schemas.event import Severity

GOOD = '[[rule]]\nname = "c"\non = "queue.congestion"\nabove = 10\nclear_below = 5\n'


def errors_of(text: str) -> tuple[str, ...]:
    with pytest.raises(RulesError) as caught:
        parse_rules(text, "rules.toml")
    return caught.value.errors


def test_a_rule_is_read_with_its_types() -> None:
    """Whole numbers are read as numbers and severities as words; a missing parameter has its default."""
    (rule,) = parse_rules(GOOD + 'severity = "critical"\n').rules
    assert isinstance(rule, LevelRule)
    assert (rule.above, rule.severity, rule.for_windows, rule.of) == (10.0, Severity.CRITICAL, 1, "both")


def test_all_errors_are_listed_at_once_with_rule_and_line() -> None:
    """One error lists every wrong key, type and value, and what is missing."""
    errors = errors_of(
        GOOD
        + 'clear_bellow = 4\n'
        + '[[rule]]\nname = "s"\non = "broker.silence"\n'
        + '[[rule]]\nname = "late"\non = "window.late"\nabove = "long"\nclear_below = 1\n'
        + '[[rule]]\nname = "two words"\non = "broker.silent"\nfor_windows = 0\n'
        + '[[rule]]\nname = "x"\non = "window.missing"\n'
        + '[[rule]]\nname = "c"\non = "dead_letters"\ntext = "{subject} {who}"\n'
        + '[colours]\nsky = "blue"\n'
    )  # fmt: skip
    assert len(errors) == 8, errors
    for wanted in (
        "'colours' is unknown",
        "rule 1 'c', line 6: clear_bellow is not a parameter of a rule on queue.congestion: did you mean clear_below?",
        "rule 2 's', line 9: on is 'broker.silence', which no rule can watch: did you mean broker.silent?",
        "rule 3 'late', line 13: above is 'long': write a number",
        "rule 4 'two words', line 16: name is 'two words'",
        "rule 4 'two words', line 18: for_windows is 0: must be at least 1",
        "rule 5 'x', line 19: for_s is missing: a rule on window.missing needs it",
        "rule 6 'c', line 25: text is '{subject} {who}': {who} is unknown",
    ):
        assert sum(wanted in error for error in errors) == 1, (wanted, errors)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "there are no rules"),
        ("rule = 3\n", "not a list of tables"),
        ("[[rule]\n", "it is not TOML"),
        (GOOD + GOOD, "the name 'c' is used by 2 rules"),
        (GOOD.replace("clear_below = 5", "clear_below = 11"), "clear_below must not exceed it"),
        (GOOD.replace("above = 10", "above = nan"), "above is nan"),
        (GOOD.replace("above = 10", "above = true"), "above is True: write a number"),
        (
            GOOD + "clear_for_windows = 9223372036854775807\n",
            "clear_for_windows is 9223372036854775807: must be at most 1000000",
        ),
        ('[[rule]]\nname = "x"\non = "dead_letters"\ncount = 10001\n', "count is 10001: must be at most 10000"),
        (GOOD + 'of = "none"\n', "of is 'none': must be one of brokers, links, both"),
        (GOOD + 'severity = "bad"\n', "severity is 'bad': must be one of info, warning, critical"),
        (GOOD + 'quiet = "22-7"\n', "write HH:MM-HH:MM"),
        (GOOD + 'quiet = "22:00-07:00 Mars/Base"\n', "is unknown here"),
        (GOOD + 'text = "{subject.x}"\n', "{subject.x} is unknown"),
        (GOOD + 'text = "{value:q}"\n', "Unknown format code"),
        (GOOD + 'text = "{0}"\n', "{0} is unknown"),
        (GOOD + 'text = "{"\n', "text is '{'"),
        ('[[rule]]\nname = "x"\n', "on is missing: use one of queue.congestion"),
        (
            "".join(
                f'[[rule]]\nname = "{n}"\non = "blast_radius"\nbrokers_above = 3\nshare_above = 0.5\n' for n in "ab"
            ),
            "a, b all watch the blast radius",
        ),
    ],
)
def test_bad_files_are_reported_in_a_sentence(text: str, wanted: str) -> None:
    """Every mistake that a user may make has a message that says what to do."""
    assert any(wanted in error for error in errors_of(text)), errors_of(text)


def test_a_missing_file_is_a_error(tmp_path: Path) -> None:
    """The message names the file and what to do."""
    with pytest.raises(RulesError, match=r"absent.toml.*\n.*cannot be read.*regraft alerts rules"):
        load_rules(tmp_path / "absent.toml")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(RulesError, match="not text in UTF-8"):
        load_rules(binary)


def test_the_default_rules_can_be_copied_and_read_again(tmp_path: Path) -> None:
    """`regraft alerts rules` prints a valid file of rules."""
    copy = tmp_path / "rules.toml"
    copy.write_text(DEFAULT_RULES.read_text())
    assert load_rules(copy) == load_rules()
