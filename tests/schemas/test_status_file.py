"""Files that others read while they are replaced."""

import errno
import json
import os
from pathlib import Path

import pytest

from regraft.schemas.status_file import StatusFile, replace_file
from tests.full_disk import small_disk


def test_a_file_is_replaced_atomically(tmp_path: Path) -> None:
    """The file holds the newest document, and no temporary file remains."""
    status = StatusFile(tmp_path / "run" / "stage.json")
    status.write({"windows": 1})
    status.write({"windows": 2})
    assert json.loads((tmp_path / "run" / "stage.json").read_text()) == {"windows": 2}
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["stage.json"]


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    """Settings and results may lie elsewhere; a dangling link names the file to make."""
    target, link = tmp_path / "elsewhere" / "file", tmp_path / "link"
    link.symlink_to(target)
    for text in ("one", "two"):
        replace_file(link, text)
        assert (link.is_symlink(), target.read_text()) == (True, text)


def test_what_is_no_file_is_written_to(tmp_path: Path) -> None:
    """Such as /dev/stdout, which root would otherwise turn into a file for everyone."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        replace_file(pipe, "text")
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    with pytest.raises(IsADirectoryError):
        replace_file(tmp_path, "text")


def test_a_status_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    """The failure is counted, here of a file in place of the directory; the status returns once writing works again."""
    (tmp_path / "run").touch()
    status = StatusFile(tmp_path / "run" / "stage.json")
    status.write({"windows": 1})
    status.write({"windows": 2})
    assert status.failures == 2
    (tmp_path / "run").unlink()
    status.write({"windows": 3})
    assert json.loads((tmp_path / "run" / "stage.json").read_text()) == {"windows": 3}


def test_a_full_disk_keeps_the_old_content(tmp_path: Path) -> None:
    """Readers still see the old content, and no partial file remains."""
    with small_disk(tmp_path / "disk") as disk:
        file = disk.directory / "stage.json"
        replace_file(file, "old")
        disk.fill()
        status = StatusFile(file)
        status.write({"text": "long" * 2_000})
        assert status.failures == 1
        with pytest.raises(OSError, match="No space left") as caught:
            replace_file(file, "new" * 2_000)
        assert caught.value.errno == errno.ENOSPC
        assert file.read_text() == "old"
        assert sorted(path.name for path in disk.directory.iterdir()) == ["filler", "stage.json"]
        disk.make_room()
        replace_file(file, "new")
        assert file.read_text() == "new"
