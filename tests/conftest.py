"""What all tests share: no settings from the developer's own environment."""

import os

import pytest


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests see the defaults, whatever REGRAFT_... variables are set outside; caches stay where they are."""
    kept = {"REGRAFT_CACHE", "REGRAFT_IVY_SETTINGS"}
    for name in os.environ:
        if name.startswith("REGRAFT_") and name not in kept:
            monkeypatch.delenv(name)
