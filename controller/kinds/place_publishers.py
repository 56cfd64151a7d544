"""Where publishers are, on overlays whose windows show it: read from windows, and from plans for those silent since."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.overlay_configuration import OverlayConfiguration

ConfigurationT = TypeVar("ConfigurationT", bound=OverlayConfiguration)


def with_publishers(present: ConfigurationT, windows: Sequence[ClosedWindow]) -> ConfigurationT:
    """Return the overlay with the homes of all publishers of the windows.

    What a window of the present epoch saw is newest; then what the plans set (``present.homes``), for a publisher that
    has been silent since it was moved; then what was seen before the last transition. A publisher without a home in any
    of the windows has none and so stays: the others are fully known anyway. A client of a broker that is no longer in
    the overlay has none, either.
    """
    homeless = frozenset[str]().union(*(window.homeless for window in windows))
    earlier: dict[str, str] = {}
    since: dict[str, str] = {}
    for window in windows:
        (since if window.epoch == present.epoch else earlier).update(window.homes)
    placed = {name: home for name, home in present.homes if name in earlier or name in since}
    known = earlier | placed | since
    here = present.neighbours
    return present.with_homes({name: at for name, at in known.items() if name not in homeless and at in here})
