"""Find the name of the user who runs this process: also where the user's ID has no entry in the list of users.

Containers are often run so, as with `docker run --user 12345` or on OpenShift.
"""

from __future__ import annotations

import getpass
import os


def find_user() -> str:
    """Return the user's name, or else ``uid-`` and the ID."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # KeyError until Python 3.13, OSError from then on.
        return f"uid-{os.getuid()}"
