"""Find the name of the user who runs this process: also where the user's ID has no entry in the list of users.

In: the environment and the system. Out: a name. Containers are often run so, as with `docker run --user 12345` or on
OpenShift.
"""

from __future__ import annotations

import getpass
import os
import pwd

from regraft.infra.stack_error import StackError


def find_user() -> str:
    """Return the user's name, or else ``uid-`` and the ID."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # KeyError until Python 3.13, OSError from then on.
        return f"uid-{os.getuid()}"


def require_listed_user() -> None:
    """Raise StackError if the user's ID has no entry: Spark's libraries ask the system for a name, whatever is set."""
    own_id = os.getuid()
    try:
        pwd.getpwuid(own_id)
    except KeyError as error:
        raise StackError(
            f"User ID {own_id} has no entry in /etc/passwd, without which Spark does not start (all other parts do): "
            f"add a line such as `regraft:x:{own_id}:0::/tmp:/bin/sh` in the image, or run as a user who has one"
        ) from error
