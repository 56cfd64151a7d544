"""The search is compiled at set-up, once: services of any user find it, and stale code is not loaded."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from regraft.infra.local import compile_search, doctor
from regraft.infra.local.compile_search import BEGIN, compile_meanwhile
from regraft.infra.local.doctor import FindingStatus, diagnose

pytest.importorskip("numba")

ROOT = Path(__file__).parents[2]
UNLISTED = 54_321
COMPILE = ("-P", "-m", "regraft.infra.local.compile_search")
FIND = "from regraft.overlay.tree.compiled_costs import find_compiled; print(find_compiled())"
LOADED = """
from regraft.overlay.tree import compiled_annealing, compiled_costs, compiled_kernels, compiled_exchanges, compiled_tree
assert compiled_costs.prepare_compiled() == ""
modules = (compiled_annealing, compiled_kernels, compiled_exchanges, compiled_tree)
stats = [each.stats for module in modules for each in vars(module).values() if hasattr(each, "stats")]
print(sum(sum(each.cache_hits.values()) for each in stats), sum(sum(each.cache_misses.values()) for each in stats))
"""


def run(site: Path, *arguments: str, prefix: tuple[str, ...] = (), **environment: str) -> tuple[str, str]:
    """Return what a Python writes that uses the installation, without a HOME."""
    finished = subprocess.run(
        [*prefix, sys.executable, *arguments], cwd="/", capture_output=True, text=True, check=True,
        env={"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", **environment},
    )  # fmt: skip
    return finished.stdout.strip(), finished.stderr.strip()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installation in which the search was compiled as in the image: for any CPU of this kind."""
    site = tmp_path_factory.mktemp("site")
    for name in ("overlay", "schemas", "infra"):
        shutil.copytree(ROOT / "regraft" / name, site / "regraft" / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "regraft" / "__init__.py", site / "regraft")
    assert run(site, *COMPILE, NUMBA_CPU_NAME="generic") == ("", BEGIN)
    return site


def test_what_is_compiled_is_not_compiled_again(site: Path) -> None:
    """The same command has nothing to do, and a new process loads all from next to the source."""
    assert run(site, *COMPILE, NUMBA_CPU_NAME="generic") == ("", "")
    place, _ = run(site, "-c", FIND, NUMBA_CPU_NAME="generic")
    assert place == str(site / "regraft" / "overlay" / "tree" / "__pycache__")
    hits, misses = run(site, "-c", LOADED, NUMBA_CPU_NAME="generic")[0].split()
    assert int(hits) > 0
    assert misses == "0"


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_any_user_loads_what_root_compiled(site: Path) -> None:
    """Although neither that directory nor any other can be written, as in the image."""
    reads_only = ("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search")  # Python may be in /root.
    as_user = ("setpriv", "--reuid", str(UNLISTED), "--regid", str(UNLISTED), "--clear-groups", *reads_only)
    hits, misses = run(site, "-c", LOADED, prefix=as_user, NUMBA_CPU_NAME="generic")[0].split()
    assert int(hits) > 0
    assert misses == "0"


def test_code_for_another_cpu_or_from_other_sources_is_stale(site: Path) -> None:
    """Also if a module changes whose loops those of an unchanged one contain."""
    assert run(site, "-c", FIND, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="+popcnt") == ("None", "")
    source = site / "regraft" / "overlay" / "tree" / "compiled_kernels.py"
    former = source.read_text()
    source.write_text(f"{former}# Changed.\n")
    try:
        assert run(site, "-c", FIND, NUMBA_CPU_NAME="generic") == ("None", "")
    finally:
        source.write_text(former)


def test_the_users_cache_is_found_if_code_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a first start where the installation cannot be written."""
    from regraft.overlay.tree import kept_code

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kept_code, "PLACES", (kept_code.PlaceOfUser,))
    assert kept_code.find_kept_code() is None
    place = Path(kept_code.PlaceOfUser(run, str(kept_code.HERE / "compiled_kernels.py")).get_cache_path())
    place.mkdir(parents=True)
    (place / kept_code.MARK.format(key="older")).touch()
    kept_code.mark_complete(place)
    assert kept_code.find_kept_code() == place
    assert place.is_relative_to(tmp_path)
    assert len(list(place.iterdir())) == 1


def test_set_up_compiles_beside_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so before, waits at the end, and if that fails, one sentence says what follows."""
    reports = list[str]()
    monkeypatch.setattr(compile_search, "is_to_compile", lambda: True)
    with compile_meanwhile(reports.append, (sys.executable, "-c", "")):
        assert reports == [BEGIN]
    assert reports == [BEGIN]
    with compile_meanwhile(reports.append, (sys.executable, "-c", "raise SystemExit('no memory')")):
        pass
    assert reports[2:] == ["The first controller will compile the search itself (no memory)."]
    with pytest.raises(KeyError), compile_meanwhile(reports.append, ("sleep", "1000")):
        raise KeyError


def test_the_doctor_reports_whether_the_search_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line; a controller works without, so nothing is missing."""

    def finding() -> doctor.Finding:
        return next(each for each in diagnose(tmp_path) if each.name == "compiled search")

    monkeypatch.setattr(doctor, "find_compiled", lambda: tmp_path)
    assert (finding().status, finding().found) == (FindingStatus.OK, f"in {tmp_path}")
    monkeypatch.setattr(doctor, "find_compiled", lambda: None)
    assert finding().status is FindingStatus.WARN
    assert " ".join(COMPILE[1:]) in finding().to_do
    monkeypatch.setattr(doctor, "missing_extras", list)
    assert "regraft[compiled]" in finding().to_do


def test_the_controllers_image_compiles_before_it_drops_its_rights() -> None:
    """For the CPU that it also runs with."""
    text = (ROOT / "infra" / "Dockerfile").read_text()
    stage = re.search(r"^FROM base AS controller$(.*?)(?=^FROM )", text, re.MULTILINE | re.DOTALL)
    assert stage is not None
    lines = [line for line in stage[1].splitlines() if line and not line.startswith("#")]
    compiles = f"RUN python {' '.join(COMPILE[1:])}"
    assert lines[:3] == ["ENV NUMBA_CPU_NAME=generic", compiles, "USER 10001"]
