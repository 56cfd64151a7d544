"""The program that an operator gives to ``spark-submit``, but killed at armed points (``kill_parts``).

The variable ARMED names the directory in which errors are armed.
"""

import os
import sys
from pathlib import Path

from regraft.streaming import submit_job
from regraft.streaming.write_state import StateWriter
from tests.streaming.kill_parts import Armed, killing_markers

if __name__ == "__main__":
    StateWriter.write_windows = killing_markers(Armed(Path(os.environ["ARMED"])))  # type: ignore[method-assign]
    sys.exit(submit_job.main())
