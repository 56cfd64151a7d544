"""Compile the controller's search over links, so that no first controller on a machine has to.

Set-up does this, and the image: ``python -m regraft.infra.local.compile_search``, which is fast if it was done before.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from regraft.infra.process.find_extras import missing_extras
from regraft.overlay.tree.compiled_costs import find_compiled, prepare_compiled

BEGIN = "Compiling the search over links so that the first controller decides sooner; this takes some 19 s, once."
COMMAND = (sys.executable, "-P", "-m", "regraft.infra.local.compile_search")
COMPILING_S_MAX = 600.0


def is_to_compile() -> bool:
    """Return True if numba is installed, and no code for this machine is kept where this user finds it."""
    return not missing_extras(["compiled"]) and find_compiled() is None


@contextmanager
def compile_meanwhile(report: Callable[[str], None], command: tuple[str, ...] = COMMAND) -> Iterator[None]:
    """Compile in another process while the body runs, if that is to do; ``report`` gets a sentence before it.

    Without compiled code a controller compiles it itself, so failure is only reported.
    """
    if not is_to_compile():
        yield
        return
    report(BEGIN)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as compiling:
        try:
            yield
            said, _ = compiling.communicate(timeout=COMPILING_S_MAX)
        except BaseException as error:
            compiling.kill()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            said = str(error)
    if compiling.returncode != 0:
        report(
            f"The first controller will compile the search itself ({(said.splitlines() or ['no reason given'])[-1]})."
        )


def main() -> None:
    """Compile and keep the code; exit with 1 and one sentence if that fails or no later process would find it."""
    if not is_to_compile():
        return
    sys.stderr.write(f"{BEGIN}\n")
    if reason := prepare_compiled():
        sys.exit(f"The search over links could not be compiled: {reason}")
    if find_compiled() is None:
        sys.exit("There is no directory in which the compiled search could be kept: set NUMBA_CACHE_DIR to one.")


if __name__ == "__main__":
    main()
