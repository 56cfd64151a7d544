"""Run Regraft on a local Spark cluster from the wheel, in a separate environment, as on other machines.

    python -m tests.regraft.run_from_wheel --directory DIR [--wheel FILE] [--borrow] [--workers 2] COMMAND ...

It builds the wheel from this checkout unless one is given, makes ``DIR/venv`` with the wheel and the locked packages
(some 600 MB; ``--borrow`` uses those of this environment), and starts a master, workers and a Regraft command from
there, in DIR and without a path to the checkout. COMMAND is that of :mod:`tests.streaming.spark_cluster`, for example
``stage stream --set kafka.bootstrap=kafka:9092`` or ``demo --quick``; its exit code is returned. Needs a checkout with
``make dev``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import NoReturn

from regraft.infra.local.find_cache import find_cache

CHECKOUT = Path(__file__).resolve().parents[2]
PATH_VARIABLES = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")


def build_wheel(directory: Path) -> Path:
    """Build the wheel of this checkout into a directory, and return it."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(build, cwd=CHECKOUT, check=True, stdout=sys.stderr)
    return max(directory.glob("*.whl"), key=lambda file: file.stat().st_mtime)


def make_environment(directory: Path, wheel: Path, *, borrow: bool) -> Path:
    """Make an environment with the locked packages and the wheel, and return its Python."""
    venv.create(directory, clear=True, with_pip=True, symlinks=True)
    paths = sysconfig.get_paths(vars={"base": str(directory), "platbase": str(directory)})
    python = Path(paths["scripts"]) / "python"
    if borrow:
        # Folders named in a .pth file are not searched for .pth files: the one that names the checkout has no effect.
        (Path(paths["purelib"]) / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    else:
        install = [
            str(python),
            str(CHECKOUT / "tests" / "house" / "install_packages.py"),
            str(CHECKOUT / "requirements.lock"),
        ]
        subprocess.run(install, check=True)
    only = ["--no-deps", "--no-index", "--force-reinstall", "--disable-pip-version-check", "--quiet"]
    subprocess.run([str(python), "-m", "pip", "install", *only, str(wheel)], check=True)
    return python


def main() -> NoReturn:
    """Install the wheel, and become the process that runs the command on a cluster."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, required=True, help="where environment, logs and results go")
    parser.add_argument("--wheel", type=Path, help="the wheel; default: built from this checkout")
    parser.add_argument("--borrow", action="store_true", help="use the libraries of this environment")
    parser.add_argument("--workers", type=int, default=2, help="number of workers")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="a command of Regraft, with its options")
    given = parser.parse_args()
    directory = given.directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    wheel = given.wheel.absolute() if given.wheel else build_wheel(directory / "dist")
    python = make_environment(directory / "venv", wheel, borrow=given.borrow)
    kept = {name: value for name, value in os.environ.items() if name not in PATH_VARIABLES}
    os.environ.clear()
    os.environ.update(kept, PYTHONSAFEPATH="1", REGRAFT_CACHE=str(find_cache()))
    os.chdir(directory)
    cluster = [
        str(CHECKOUT / "tests" / "streaming" / "spark_cluster.py"),
        "--directory",
        str(directory),
        "--workers",
        str(given.workers),
    ]
    os.execv(python, [str(python), *cluster, *given.command])


if __name__ == "__main__":
    main()
