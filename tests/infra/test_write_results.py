"""Results of a run are written whole, or the former ones stay."""

from collections.abc import Callable
from pathlib import Path

import pytest

from regraft.demo.run_demo import _write_json
from regraft.infra.process.measured_figures import Figure, write_figures
from tests.full_disk import small_disk

FIGURES = [Figure("name", {}, 1.0, "s")] * 2_000
WRITERS: dict[str, Callable[[Path], None]] = {
    "figures": lambda file: write_figures(file, {}, FIGURES),
    "summary": lambda file: _write_json(file, {"figures": ["x" * 100] * 2_000}),
}


@pytest.mark.parametrize("which", WRITERS)
def test_a_full_disk_leaves_the_former_results(which: str, tmp_path: Path) -> None:
    """Half a file would look like results, or end what reads it."""
    with small_disk(tmp_path / "disk") as disk:
        file = disk.directory / "results.json"
        file.write_text("former")
        disk.fill()
        with pytest.raises(OSError, match="space"):
            WRITERS[which](file)
        disk.make_room()
        assert [each.name for each in disk.directory.iterdir()] == ["results.json"]
        assert file.read_text() == "former"
