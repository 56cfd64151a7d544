"""Find the homes of publishers from windows, and from plans for those silent since: on trees and cyclic overlays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.overlay_configuration import OverlayConfiguration

ConfigurationT = TypeVar("ConfigurationT", bound=OverlayConfiguration)


def with_publishers(present: ConfigurationT, windows: Sequence[ClosedWindow]) -> ConfigurationT:
    """Return the overlay with the homes of all publishers of the windows.

    Windows of the present epoch take precedence; then what plans set (``present.homes``), for publishers that have been
    silent since they were moved; then windows from before the last transition. A publisher that is homeless in any
    window gets no home and so stays: all others have one anyway. Neither does a client of a broker that is no longer in
    the overlay.
    """
    homeless = frozenset[str]().union(*(window.homeless for window in windows))
    earlier: dict[str, str] = {}
    since: dict[str, str] = {}
    for window in windows:
        (since if window.epoch == present.epoch else earlier).update(window.homes)
    placed = {name: home for name, home in present.homes if name in earlier or name in since}
    publishers = earlier | placed | since
    here = present.neighbours
    return present.with_homes({name: at for name, at in publishers.items() if name not in homeless and at in here})
