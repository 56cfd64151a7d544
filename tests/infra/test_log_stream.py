"""A log on a full disk."""

from pathlib import Path

from regraft.infra.process.log_stream import LogStream
from tests.full_disk import small_disk


def test_a_full_disk_only_loses_log_lines(tmp_path: Path) -> None:
    """The process continues; once there is space the log continues, too, and says how much is missing."""
    with small_disk(tmp_path / "disk") as disk:
        file = disk.directory / "stage.log"
        with file.open("a", encoding="utf-8") as stream:
            log = LogStream(stream)
            log.write("before\n")
            disk.fill()
            for _ in range(3):
                assert log.write("x" * 20_000 + "\n") == 20_001
            assert log.lost == 3
            disk.make_room()
            log.write("after\n")
            log.write("and on\n")
        lines = file.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("before")
    assert lines[-2:] == ["after", "and on"]
    assert [line for line in lines if "3 lines of this log are missing" in line]
