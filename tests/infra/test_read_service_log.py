"""Why a service ended, by the end of its log."""

from dataclasses import replace
from pathlib import Path

from regraft.infra.local.service import CAUSE_LENGTH_MAX, ServiceEvent, ServiceEventKind, cause_of, log_tail, rotate_log


def test_the_cause_is_the_last_logged_reason_or_the_last_line() -> None:
    """Entries of a stage carry their reason as a field; programs that are not ours end with a line."""
    entry = '{"stage": "node", "reason": "port 1 is taken.", "event": "stage_cannot_start"}'
    assert cause_of(f"{entry}\n{{}}\nsome warning at the end\n") == "port 1 is taken"
    assert cause_of("first\n\n  Cannot open config file \n\n") == "Cannot open config file"
    assert cause_of("\n") == ""
    assert len(cause_of("x" * 2 * CAUSE_LENGTH_MAX)) == CAUSE_LENGTH_MAX


def test_a_large_log_is_moved_aside(tmp_path: Path) -> None:
    """What the next process writes begins at the returned size, in an empty file if the log was too large."""
    log_file = tmp_path / "logs" / "a.log"
    assert rotate_log(log_file, 10) == 0
    log_file.write_text("12345")
    assert rotate_log(log_file, 10) == 5
    assert log_tail(log_file, 3) == "45"
    assert rotate_log(log_file, 4) == 0
    assert log_tail(log_file) == ""
    assert (tmp_path / "logs" / "a.log.1").read_text() == "12345"


def test_a_cause_controls_no_terminal() -> None:
    """What a program writes may be what others sent to it."""
    assert cause_of("a\x1b[2Jb\x07c\u202ed") == "a [2Jb c d"
    assert cause_of('{"reason": "two\\nlines"}') == "two lines"


def test_only_a_death_is_shown_with_its_reason() -> None:
    """A service that has ended for good is shown with a whole sentence instead."""
    died = ServiceEvent(0.0, "controller", ServiceEventKind.DIED, 7, 0, 1, "it exited with code 1 (full): see a.log")
    assert died.text == "controller died (process 7): it exited with code 1 (full): see a.log"
    assert replace(died, kind=ServiceEventKind.GAVE_UP, pid=0).text == "controller gave up"
