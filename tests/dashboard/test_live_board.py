"""The board: every page gets exactly what it has not seen yet, however slow it is."""

import asyncio
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from regraft.dashboard.live_board import LiveBoard
from tests.wait_until import PATIENCE_S

SERIES = {"cost": lambda point: point["end"]}


class Page:
    """A page that merges what it gets, as the page's script does."""

    def __init__(self) -> None:
        self.version = 0
        self.parts: dict[str, Any] = {}
        self._bases: dict[str, int] = {}

    def take(self, text: str) -> list[str]:
        message = json.loads(text)
        self.version = message["version"]
        for name, part in message["parts"].items():
            if "whole" in part:
                self.parts[name] = part["whole"]
                continue
            known = [] if part["is_whole"] else self.parts[name][part["base"] - self._bases[name] :]
            for number, entry in part["entries"]:
                known[number - part["base"] : number - part["base"] + 1] = [entry]
            self.parts[name], self._bases[name] = known, part["base"]
        return sorted(message["parts"])


def points(*ends: int, value: int = 0) -> list[dict[str, int]]:
    return [{"end": end, "value": value} for end in ends]


def test_a_page_gets_only_what_it_has_not_seen() -> None:
    """After the full state, a change sends only the changed part, and of a series only the new entries."""

    async def course() -> None:
        board, page = LiveBoard(SERIES), Page()
        await board.replace({"cost": points(1, 2), "counts": {"plans": 1}})
        assert page.take(board.text_since(0)) == ["cost", "counts"]
        assert await board.replace({"cost": points(1, 2, 3), "counts": {"plans": 1}}) == ("cost",)
        message = json.loads(board.text_since(page.version))
        assert message["parts"] == {"cost": {"base": 0, "is_whole": False, "entries": [[2, {"end": 3, "value": 0}]]}}
        page.take(board.text_since(page.version))
        assert page.parts == board.values()

    asyncio.run(course())


def test_equal_values_wake_no_page() -> None:
    """The same values again are not a new version."""

    async def course() -> None:
        board = LiveBoard(SERIES)
        await board.replace({"cost": points(1), "counts": None})
        version = board.version
        assert await board.replace({"cost": points(1), "counts": None}) == ()
        assert board.version == version

    asyncio.run(course())


def test_a_slow_page_gets_the_newest_state_in_one_message() -> None:
    """However many states it missed, it gets one text, sized by what differs, not by how often it changed."""

    async def course() -> None:
        board, page = LiveBoard(SERIES), Page()
        await board.replace({"cost": points(0), "counts": 0})
        page.take(board.text_since(0))
        for count in range(1, 200):
            await board.replace({"counts": count, "cost": points(*range(max(0, count - 5), count))})
        assert page.take(board.text_since(page.version)) == ["cost", "counts"]
        assert page.parts == board.values()
        assert page.version == board.version

    asyncio.run(course())


def test_waiting_ends_at_a_change_a_stop_or_a_time_out() -> None:
    """A waiting page continues when there is something new, when the server stops, and at its time-out."""

    async def course() -> None:
        board = LiveBoard({})
        await board.wait_beyond(0, 0.01)
        waiting = asyncio.create_task(board.wait_beyond(0, 60))
        await asyncio.sleep(0)
        await board.replace({"counts": 1})
        await asyncio.wait_for(waiting, PATIENCE_S)
        waiting = asyncio.create_task(board.wait_beyond(board.version, 60))
        await asyncio.sleep(0)
        await board.close()
        await asyncio.wait_for(waiting, PATIENCE_S)

    asyncio.run(course())


entries = st.builds(lambda end, value: {"end": end, "value": value}, st.integers(0, 6), st.integers(0, 2))


@given(st.lists(st.tuples(st.lists(entries, max_size=6), st.booleans()), max_size=12))
def test_any_history_of_a_series_arrives_complete(course: list[tuple[list[dict[str, int]], bool]]) -> None:
    """Lists that grow, lose their beginning, change or are replaced: a page that polls now and then is correct.

    Keys may repeat: entries are merged by position, a key only shows where a list was cut.
    """

    async def run() -> None:
        board, page = LiveBoard(SERIES), Page()
        for newest, looks in course:
            await board.replace({"cost": newest})
            if looks and board.version > page.version:
                page.take(board.text_since(page.version))
                assert page.parts["cost"] == newest
        if board.version > page.version:
            page.take(board.text_since(page.version))
        assert page.parts.get("cost", []) == board.value("cost")

    asyncio.run(run())
