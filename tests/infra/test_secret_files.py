"""Files with secrets that every user may read are named, with the way out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from structlog.testing import capture_logs

from regraft.infra.process.secret_files import open_files, open_text, warn_of_open


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a directory that all may enter, as pytest's own are private."""
    with TemporaryDirectory(dir="/tmp") as name:  # TMPDIR may lie in a private one.
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize(("mode", "is_open"), [(0o644, True), (0o604, True), (0o600, False), (0o440, False)])
def test_only_what_every_user_may_read_is_open(place: Path, mode: int, is_open: bool) -> None:
    file = place / "password"
    file.write_text("x")
    file.chmod(mode)
    assert open_files([file]) == ([file] if is_open else [])
    assert (str(file) in open_text([file])) is is_open
    with capture_logs() as logs:
        warn_of_open([file])
    assert ["chmod 600" in entry["to_do"] for entry in logs] == [True] * is_open


def test_a_private_directory_protects_what_it_holds(place: Path) -> None:
    inner = place / "private"
    inner.mkdir(mode=0o700)
    (inner / "key").write_text("x")
    (place / "link").symlink_to(inner / "key")
    assert open_text([inner / "key", place / "link", place / "absent"]) == ""
