"""People see how far an installation of packages is."""

from pathlib import Path

import pytest

from regraft.infra.install_packages import count_packages, main, progress_lines

LOCK = "numpy==2.3.0 \\\n    --hash=sha256:00\nwin==1 ; sys_platform == 'win32' \\\n    --hash=sha256:01\n"


def test_each_package_is_counted_once() -> None:
    """A package of two locks counts once, a hash or a comment does not."""
    assert count_packages([LOCK, LOCK + "# via numpy\nscipy==1.0 \\\n"]) == 3


def test_what_pip_says_becomes_a_count() -> None:
    """Packages count as pip comes to them, also those that are there; sizes are reported, all else is not."""
    output = [
        "Collecting numpy==2.3.0 (from -r requirements.lock (line 1))\n",
        "  Downloading numpy-2.3.0-cp311.whl (16.9 MB)\n",
        "     ━━━ 16.9/16.9 MB 300.0 kB/s\n",
        "Requirement already satisfied: scipy==1.0 in .venv\n",
        "Installing collected packages: numpy\n",
        "Successfully installed numpy-2.3.0\n",
    ]
    assert list(progress_lines(output, 2)) == [
        "Packages: 1 of 2, numpy",
        "Packages: 1 of 2, numpy (16.9 MB)",
        "Packages: 2 of 2, scipy",
        "Packages: 2 of 2, unpacking",
    ]


def test_a_failure_shows_what_pip_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A package without a hash is refused; pip's code and reason come out."""
    lock = tmp_path / "wrong.lock"
    lock.write_text("numpy==2.3.0\n")
    assert main([str(lock)]) != 0
    assert "hash" in capfd.readouterr().err
