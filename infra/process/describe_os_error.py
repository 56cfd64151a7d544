"""Describe in one sentence why the operating system refused a file or connection, with its name and what to do."""

import errno
import os

from regraft.infra.process.check_disk import is_disk_full

REMEDIES = {
    errno.EROFS: "choose a place that can be written",
    errno.EACCES: "check its permissions, or choose another place",
    errno.EPERM: "check its permissions, or choose another place",
    errno.ENOENT: "check its name and that its directory exists",
    errno.ENOTDIR: "a part of its path is a file: choose another place",
    errno.EISDIR: "name a file in this directory",
    errno.EEXIST: "remove it, or choose another name",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EMFILE: "raise the limit of open files (`ulimit -n`)",
}
OTHER_REMEDY = "check it, and the disk or network it is on"


def describe_os_error(error: OSError) -> str:
    """Return the sentence for a user."""
    if is_disk_full(error):
        place = _name(error) or "the run directory or of the output"
        return f"The disk of {place} is full: free some space and start again."
    reason = error.strerror or str(error) or type(error).__name__
    remedy = REMEDIES.get(error.errno or 0, OTHER_REMEDY)
    return f"{_name(error) or 'A file or connection'} cannot be used ({reason}): {remedy}."


def _name(error: OSError) -> str:
    return os.fsdecode(error.filename) if isinstance(error.filename, str | bytes | os.PathLike) else ""
