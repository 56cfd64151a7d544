"""Tasks end, even if a library suppresses that they are cancelled."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from regraft.infra.process.end_tasks import end_tasks


def test_what_has_no_effect_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """One task suppresses it twice, one fails, one has ended before."""
    monkeypatch.setattr("regraft.infra.process.end_tasks.AGAIN_S", 0.01)

    async def suppresses() -> None:
        for _ in range(2):
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        await asyncio.Event().wait()

    async def fails() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError

    async def go() -> None:
        tasks = [asyncio.create_task(each) for each in (suppresses(), fails(), asyncio.sleep(0))]
        await asyncio.sleep(0.01)
        await end_tasks(tasks)
        assert [task.cancelled() for task in tasks] == [True, False, False]
        await end_tasks([])

    asyncio.run(asyncio.wait_for(go(), 10))
