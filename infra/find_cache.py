"""Find the directory where fetched jars and the generated Java home are kept.

In: the environment and the location of this package. Out: a path. Creating files there belongs to other modules.
"""

import os
from collections.abc import Mapping
from pathlib import Path

CACHE_VARIABLE = "REGRAFT_CACHE"


def find_checkout() -> Path | None:
    """Return the root of the source checkout, None if the package is installed elsewhere."""
    root = Path(__file__).resolve().parents[1]
    return root if (root / "pyproject.toml").is_file() and (root / "infra" / "jars.lock").is_file() else None


def find_cache(environ: Mapping[str, str] = os.environ) -> Path:
    """Return ``$REGRAFT_CACHE``, else ``.cache`` of the checkout, else the user's XDG cache; it need not exist yet."""
    named = environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser().resolve()
    checkout = find_checkout()
    if checkout is not None:
        return checkout / ".cache"
    user_cache = environ.get("XDG_CACHE_HOME")
    return (Path(user_cache) if user_cache else Path.home() / ".cache") / "regraft"
