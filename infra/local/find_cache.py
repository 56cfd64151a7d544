"""Find the directory where fetched jars and the generated Java home are kept."""

import os
from collections.abc import Mapping
from pathlib import Path

from regraft.infra.process.stack_error import StackError

CACHE_VARIABLE = "REGRAFT_CACHE"


def find_checkout() -> Path | None:
    """Return the root of the source checkout, None if the package is installed elsewhere."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "pyproject.toml").is_file() and (root / "infra" / "jars.lock").is_file() else None


def find_cache(environ: Mapping[str, str] = os.environ) -> Path:
    """Return ``$REGRAFT_CACHE``, else ``.cache`` of the checkout, else the user's XDG cache; it need not exist yet.

    Raises StackError if the user has none.
    """
    named = environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser().resolve()
    checkout = find_checkout()
    if checkout is not None:
        return checkout / ".cache"
    user_cache = environ.get("XDG_CACHE_HOME")
    try:
        return (Path(user_cache) if user_cache else Path.home() / ".cache") / "regraft"
    except RuntimeError as error:  # No HOME, and the user's ID has no entry in the list of users.
        raise StackError(f"This user has no home directory for a cache: set {CACHE_VARIABLE} to a directory") from error
