"""Become another program that the kernel kills when the thread that started it ends.

Run as a file: ``python -I -S die_with_parent.py PARENT_PID PROGRAM ARGUMENT...``. It is a separate program because
asking the kernel (PR_SET_PDEATHSIG) in ``preexec_fn`` of a process with threads may deadlock. The request survives
``exec``. On Linux only; elsewhere the program runs without it. It imports nothing of this project, to start quickly.
"""

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Request SIGKILL at the parent's death, check that the parent is still alive, and become the program."""
    parent_pid, program = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        import ctypes

        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
            sys.exit(f"prctl(PR_SET_PDEATHSIG) failed: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent_pid:  # it died before the request
        sys.exit(f"Parent process {parent_pid} is gone: {program[0]} was not started.")
    try:
        os.execvp(program[0], program)
    except OSError as error:
        sys.exit(f"Cannot run {program[0]}: {error.strerror}.")


if __name__ == "__main__":
    main()
