"""The wheel contains one package, which is found next to others that have our folders' names.

tests/regraft/demo/test_demo_stack.py shows that the entire loop runs from it.
"""

import subprocess
import zipfile
from pathlib import Path

from tests.regraft.run_installed import CHECKOUT, FOLDERS, run_installed


def test_the_wheel_has_one_package(wheel: Path) -> None:
    """Everything in site-packages is under regraft, which has each folder of the checkout with its data."""
    with zipfile.ZipFile(wheel) as parts:
        names = parts.namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"regraft"}
    for folder in FOLDERS:
        ours = subprocess.run(["git", "ls-files", folder], cwd=CHECKOUT, capture_output=True, text=True, check=False)
        assert {f"regraft/{name}" for name in ours.stdout.splitlines()} <= set(names)
        assert f"regraft/{folder}/__init__.py" in names


def test_each_module_is_found_next_to_packages_with_our_folders_names(installed: Path, folder_of_others: Path) -> None:
    """All modules are imported from the environment, in a working directory with packages named like our folders."""
    walk = (
        "import importlib, pkgutil, sys, regraft\n"
        "found = [each.name for each in pkgutil.walk_packages(regraft.__path__, 'regraft.')]\n"
        "for name in found:\n"
        "    if not name.endswith('__main__') and not name.endswith('relay_tls'):\n"
        "        importlib.import_module(name)\n"
        f"assert not {set(FOLDERS)!r} & set(sys.modules), sys.modules.keys()\n"
        "assert regraft.__file__.startswith(sys.prefix), regraft.__file__\n"
        "print(len(found))"
    )
    answer = run_installed(installed, folder_of_others, "-c", walk)
    assert answer.returncode == 0, answer.stderr[-4000:]
    assert int(answer.stdout) > 500
