"""Run `regraft stage control` with other constants than the product's: ``control_with_constants.py JSON ARGUMENTS``.

The first argument holds values by the full names of former settings; the others are those of the command.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from regraft.cli import main
from regraft.settings import run_settings
from regraft.settings.fixed_settings import RECORDED, with_recorded

usual = run_settings.load_settings


def patient(*arguments: Any, **named: Any) -> run_settings.Settings:
    """Return the settings with the constants of the call."""
    return with_recorded(usual(*arguments, **named), {RECORDED: constants})


if __name__ == "__main__":
    constants = json.loads(sys.argv.pop(1))
    run_settings.load_settings = patient
    main()
