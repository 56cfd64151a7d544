"""Jars are fetched once and checked against the lock, and no broken or foreign jar is ever used."""

import json
import multiprocessing
import re
from importlib.metadata import version
from pathlib import Path

import pytest

from regraft.infra.local import fetch_jars as module
from regraft.infra.local.fetch_jars import JarError, JarSet, check_jars, fetch_jars, read_lock, relock
from tests.wait_until import PATIENCE_S

from .conftest import MavenRepository, jar_set_of

ROOT = "org.example:thing:1.0"
OTHER = "org.example:other:2.0"


def test_lock_holds_the_two_sets() -> None:
    """The lock has the four jars of the locked Spark and a Kafka broker, each with a SHA-256."""
    sets, spark = read_lock(), version("pyspark")
    assert sorted(sets["spark"].jars) == [
        "commons-pool2-2.13.1.jar",
        "kafka-clients-3.9.2.jar",
        f"spark-sql-kafka-0-10_2.13-{spark}.jar",
        f"spark-token-provider-kafka-0-10_2.13-{spark}.jar",
    ]
    assert "kafka_2.13-4.3.0.jar" in sets["kafka"].jars
    assert all(re.fullmatch("[0-9a-f]{64}", total) for each in sets.values() for total in each.jars.values())


def test_fetched_jars_match_and_are_not_resolved_again(
    maven_repository: MavenRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A set is fetched once; the second call finds it in the cache and resolves nothing, with or without a network."""
    for root in (ROOT, OTHER):
        maven_repository.publish(root, root.encode())
    wanted = jar_set_of((ROOT, ROOT.encode()), (OTHER, OTHER.encode()))
    first = fetch_jars(wanted, tmp_path / "cache", backoff_s=0)
    assert [path.name for path in first] == ["other-2.0.jar", "thing-1.0.jar"]
    monkeypatch.setattr(module, "_run_ivy", lambda *_: pytest.fail("resolved again"))
    assert fetch_jars(wanted, tmp_path / "cache") == first


def test_altered_jar_in_the_cache_is_replaced(maven_repository: MavenRepository, tmp_path: Path) -> None:
    """A cached jar that no longer matches the lock is removed and fetched again."""
    maven_repository.publish(ROOT, b"true content")
    wanted = jar_set_of((ROOT, b"true content"))
    (jar,) = fetch_jars(wanted, tmp_path / "cache", backoff_s=0)
    jar.write_bytes(b"altered")
    assert check_jars(wanted, jar.parent).mismatched == ("thing-1.0.jar",)
    fetch_jars(wanted, tmp_path / "cache", backoff_s=0)
    assert jar.read_bytes() == b"true content"


def test_foreign_jar_is_refused_and_removed(maven_repository: MavenRepository, tmp_path: Path) -> None:
    """If a repository's content differs from the lock it is refused after three attempts, and nothing of it is kept."""
    path = maven_repository.publish(ROOT, b"foreign content")
    wanted = jar_set_of((ROOT, b"true content"))
    with pytest.raises(JarError, match=r"thing-1.0.jar does not match infra/jars.lock and was removed"):
        fetch_jars(wanted, tmp_path / "cache", backoff_s=0)
    assert not list((tmp_path / "cache").rglob("*.jar"))
    assert maven_repository.asked.count(path) == 3


def test_a_broken_download_is_retried(maven_repository: MavenRepository, tmp_path: Path) -> None:
    """An interrupted download is repeated, and only the complete jar is kept."""
    content = b"whole content" * 1000
    path = maven_repository.publish(ROOT, content)
    maven_repository.broken[path] = 1
    (jar,) = fetch_jars(jar_set_of((ROOT, content)), tmp_path / "cache", backoff_s=0)
    assert jar.read_bytes() == content
    assert maven_repository.asked.count(path) >= 2


def test_missing_jars_without_a_source_are_one_sentence(maven_repository: MavenRepository, tmp_path: Path) -> None:
    """If jars are not available one sentence says what to do."""
    with pytest.raises(JarError) as caught:
        fetch_jars(jar_set_of((ROOT, b"content")), tmp_path / "cache", tries=1)
    assert re.fullmatch(
        r"1 of 1 jars of the set 'trial' could not .* network .*REGRAFT_IVY_SETTINGS\.", str(caught.value)
    )


def test_a_missing_settings_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names a mirror's settings file that does not exist."""
    monkeypatch.setenv(module.SETTINGS_VARIABLE, str(tmp_path / "absent.xml"))
    with pytest.raises(JarError, match=r"absent\.xml, which is not a file"):
        fetch_jars(jar_set_of((ROOT, b"content")), tmp_path / "cache", backoff_s=0)


def _fetch_in_child(wanted: JarSet, cache_dir: Path) -> None:
    fetch_jars(wanted, cache_dir, backoff_s=0)


def test_two_set_ups_at_once_fetch_once(maven_repository: MavenRepository, tmp_path: Path) -> None:
    """Two processes that set up the same cache at once both succeed, and the jar is downloaded once."""
    path = maven_repository.publish(ROOT, b"content" * 10_000)
    wanted = jar_set_of((ROOT, b"content" * 10_000))
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=_fetch_in_child, args=(wanted, tmp_path / "cache")) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join(PATIENCE_S)
    assert [child.exitcode for child in children] == [0, 0]
    assert check_jars(wanted, tmp_path / "cache" / "jars" / "trial").complete
    assert maven_repository.asked.count(path) == 1


def test_relock_writes_the_checksums_of_the_fetched_jars(maven_repository: MavenRepository, tmp_path: Path) -> None:
    """The maintainer's command replaces the checksums and keeps the roots."""
    maven_repository.publish(ROOT, b"content")
    lock = tmp_path / "jars.lock"
    lock.write_text(json.dumps({"trial": {"roots": [ROOT], "transitive": True, "jars": {"old.jar": "0" * 64}}}))
    relock(lock, tmp_path / "cache")
    assert read_lock(lock)["trial"].jars == jar_set_of((ROOT, b"content")).jars
    assert read_lock(lock)["trial"].roots == (ROOT,)
