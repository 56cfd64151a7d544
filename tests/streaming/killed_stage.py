"""The stage ``stream`` as ``regraft`` starts it, but killed at armed points (``kill_parts``).

The variable ARMED names the directory in which errors are armed.
"""

import os
from pathlib import Path

from regraft.cli import main
from regraft.streaming.write_state import StateWriter
from tests.streaming.kill_parts import Armed, killing_markers

if __name__ == "__main__":
    StateWriter.write_windows = killing_markers(Armed(Path(os.environ["ARMED"])))  # type: ignore[method-assign]
    main()
