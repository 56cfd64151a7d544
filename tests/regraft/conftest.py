"""The wheel as users have it: in an environment without the checkout, next to packages with our folders' names."""

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
    """Return the interpreter of an environment with the wheel and the locked libraries, and without the checkout."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    paths = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
    libraries = Path(paths["purelib"])
    with zipfile.ZipFile(wheel) as parts:
        parts.extractall(libraries)
    # A folder named in a .pth file has its own .pth files ignored: the one that leads to the checkout has no effect.
    (libraries / "locked.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return Path(paths["scripts"]) / "python"


@pytest.fixture
def folder_of_others(tmp_path: Path) -> Iterator[Path]:
    """Yield a project with packages named as ours, which must not be imported by mistake."""
    for name in FOLDERS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('a package of somebody else')\n")
    return tmp_path
