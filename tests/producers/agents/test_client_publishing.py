"""Where a client publishes while its agent's process is held up."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from unittest.mock import Mock

from regraft.producers.agents.client_publishing import REPEAT_S, ClientPublishing


def test_a_flush_that_came_while_the_agent_was_held_up_has_come() -> None:
    """When it resumes, the message behind what the client published has come and the time is up."""

    async def go() -> bool:
        publishing: Any = ClientPublishing(Mock(), Mock())
        publishing._flushed = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.call_later(0.2 * REPEAT_S, time.sleep, 2 * REPEAT_S)
        loop.call_later(0.4 * REPEAT_S, publishing.note_flush, b"%d" % publishing._mark)
        return bool(await publishing._comes(Mock(), REPEAT_S))

    assert asyncio.run(go())
