"""Compute the next record of a member that dies, restarts, comes back, joins or leaves. Pure.

In: a record, and what has happened. Out: the record after it. Detecting what has happened belongs elsewhere.
"""

from __future__ import annotations

from msgspec.structs import replace

from regraft.controller.settings.member_settings import MemberSettings
from regraft.schemas.bounds import TIME_MS_MAX
from regraft.schemas.member import Member, MemberState
from regraft.schemas.texts import shortened
from regraft.schemas.units import HOUR_MS

NEVER_MS = TIME_MS_MAX  # When a broker may return that was leaving before it died: never.


def entered_state(member: Member, state: MemberState, reason: str, now_ms: int) -> Member:
    """Return the member's record in another state."""
    return replace(member, state=state, reason=shortened(reason), since_ms=now_ms)


def died(member: Member, boot_ms: int, reason: str, now_ms: int, settings: MemberSettings) -> Member:
    """Return the member as dead, with when it may come back: later with each further death within the last hour.

    A draining one does not come back by itself.
    """
    deaths = (*_late_deaths(member, now_ms), now_ms)
    pause_ms = min(settings.return_pause_ms * 2 ** min(len(deaths) - 1, 30), settings.return_pause_ms_max)
    returns_ms = NEVER_MS if member.state is MemberState.LEAVING else now_ms + pause_ms
    dead = entered_state(member, MemberState.DEAD, reason, now_ms)
    return replace(dead, boot_ms=boot_ms, deaths_ms=deaths, returns_ms=returns_ms)


def restarted(member: Member, boot_ms: int, reason: str, now_ms: int, settings: MemberSettings) -> Member:
    """Return the record of a restarted member: joining, or dead if it was leaving or had died within the last hour."""
    if member.state is MemberState.LEAVING or _late_deaths(member, now_ms):
        return died(member, 0, reason, now_ms, settings)
    joining = entered_state(member, MemberState.JOINING, reason, now_ms)
    return replace(joining, boot_ms=boot_ms, deaths_ms=(now_ms,), returns_ms=0)


def is_dead_by_order(member: Member) -> bool:
    """Return True if an operator declared the member dead: then only another incarnation of it comes back."""
    return member.ordered_ms > 0 and member.state is MemberState.DEAD and member.ordered_ms >= member.deaths_ms[-1]


def is_by_order(member: Member) -> bool:
    """Return True if an operator ordered the member's present state, or nothing but an order leads to it."""
    if member.state in (MemberState.LEAVING, MemberState.LEFT):
        return True
    if member.state is MemberState.JOINING:
        return member.ordered_ms > max(member.deaths_ms, default=0)
    return is_dead_by_order(member)


def _late_deaths(member: Member, now_ms: int) -> tuple[int, ...]:
    return tuple(time_ms for time_ms in member.deaths_ms if now_ms - time_ms < HOUR_MS)
