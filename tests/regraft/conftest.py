"""The wheel as a user has it: in an environment without the checkout, beside packages named as our folders."""

import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.regraft.run_installed import CHECKOUT, FOLDERS


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=CHECKOUT, check=True, capture_output=True, timeout=120)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and the locked libraries, and without the checkout; its interpreter."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    paths = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
    libraries = Path(paths["purelib"])
    with zipfile.ZipFile(wheel) as parts:
        parts.extractall(libraries)
    # Of a folder that a .pth file names no .pth file is read: the one that leads to the checkout has no effect.
    (libraries / "locked.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return Path(paths["scripts"]) / "python"


@pytest.fixture
def folder_of_others(tmp_path: Path) -> Iterator[Path]:
    """A project with packages named as ours, which nobody may import by mistake."""
    for name in FOLDERS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('a package of somebody else')\n")
    return tmp_path
