"""``--watch`` reads and shows again until Ctrl-C; without it, once."""

import pytest
import typer

from regraft.commands.watch_output import REFRESH_S, show_watched


def test_without_watch_it_shows_once() -> None:
    """What was read is returned, so that the command can choose its exit code."""
    shown: list[int] = []
    assert show_watched(lambda: 7, shown.append, watch=False) == 7
    assert shown == [7]


def test_with_watch_it_reads_again_until_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each refresh shows what is content then; Ctrl-C is the usual end, so the exit code is 0."""
    pauses: list[float] = []

    def interrupted(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("regraft.commands.watch_output.time.sleep", interrupted)
    content = iter(range(10))
    shown: list[int] = []
    with pytest.raises(typer.Exit) as exit_of:
        show_watched(lambda: next(content), shown.append, watch=True)
    assert (exit_of.value.exit_code, shown) == (0, [0, 1, 2])
    assert pauses == [REFRESH_S] * 3


def test_without_watch_ctrl_c_is_left_to_the_command() -> None:
    """A command that is interrupted before it has a result exits with 130."""

    def interrupted() -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        show_watched(interrupted, print, watch=False)
