"""The doctor finds what is missing, says what to do, and accepts a complete set-up."""

from pathlib import Path

import pytest

from regraft.infra.kafka.create_topics import TopicMismatchError
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.live.redis_access import RedisAccess
from regraft.infra.local import doctor as module
from regraft.infra.local.doctor import Finding, FindingStatus, clocks_finding, diagnose, package_errors
from regraft.infra.local.fetch_jars import JarSet


def _by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


def test_after_the_set_up_nothing_is_missing(tmp_path: Path) -> None:
    """The machine that runs the tests has everything that a run needs."""
    findings = diagnose(tmp_path)
    assert [finding for finding in findings if finding.status is FindingStatus.MISSING] == []


def test_every_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every finding that is not ok says what to do about it."""
    monkeypatch.setattr(module, "jar_dir", lambda name: tmp_path / name)
    monkeypatch.setattr(module, "SERVER_TIMEOUT_S", 0.2)
    environ = {
        "PATH": "",
        "REGRAFT_CACHE": str(tmp_path / "cache"),
    }
    servers = {"kafka": KafkaAccess("127.0.0.1:1"), "redis": RedisAccess("redis://:secret@127.0.0.1:1/0")}
    found = diagnose(tmp_path, environ=environ, free_mb_min=10**12, **servers)  # type: ignore[arg-type]
    errors = {finding.name for finding in found if finding.status is FindingStatus.MISSING}
    assert errors >= {"jars for spark", "jars for kafka", "disk of the output", "kafka server", "redis server"}
    assert all(finding.to_do for finding in found if finding.status is not FindingStatus.OK)
    assert not any(finding.to_do for finding in found if finding.status is FindingStatus.OK)
    assert "secret" not in str(found)


def test_secrets_that_every_user_may_read_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not more: in a container with one user a mount may be so."""
    assert module._secrets([]).status is FindingStatus.OK
    monkeypatch.setattr(module, "open_text", lambda _: "every user may read x")
    finding = module._secrets([Path("x")])
    assert (finding.status, finding.found) == (FindingStatus.WARN, "every user may read x")
    assert "chmod 600" in finding.to_do


def test_missing_topics_are_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans and members hold what nothing else does."""
    kafka = KafkaAccess("127.0.0.1:1")
    for suffix, advice in (("plans", "regraft recover"), ("events", "")):
        monkeypatch.setattr(module, "missing_topics", lambda *_, suffix=suffix: [f"a.{suffix}"])
        finding = module._topics_finding(kafka, "a", ("",))
        assert (finding.status, finding.found) == (FindingStatus.MISSING, f"a.{suffix} is missing")
        assert "regraft topics --create" in finding.to_do
        assert ("regraft recover" in finding.to_do) is bool(advice)


def test_a_topic_that_no_stage_accepts_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stages refuse to start with it, while `all topics exist` was all that the doctor found."""

    def refuse(*_: object) -> str:
        raise TopicMismatchError("Topic a.plans does not have what is needed (x is 1): alter it (a --add x=2) or so.")

    kafka = KafkaAccess("127.0.0.1:1")
    for answer, expected in ((refuse, FindingStatus.MISSING), (lambda *_: "not authorised", FindingStatus.WARN)):
        monkeypatch.setattr(module, "check_topics", answer)
        assert module._topics_finding(kafka, "a", ()).status is expected
    monkeypatch.setattr(module, "check_topics", refuse)
    finding = module._topics_finding(kafka, "a", ())
    assert finding.found == "Topic a.plans does not have what is needed (x is 1)"
    assert finding.to_do == "Alter it (a --add x=2) or so."


def test_a_server_that_refuses_the_live_view_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers, but the dashboard would stay empty."""
    monkeypatch.setattr(module, "is_redis_ready", lambda *_: True)
    monkeypatch.setattr(module, "why_refused", lambda *_: "its memory is full: raise maxmemory")
    (finding,) = module._servers(None, "regraft", (), RedisAccess("redis://:secret@h:1/0"))
    assert finding == Finding(
        "redis server", FindingStatus.MISSING, "h:1/0 refuses writes: its memory is full", "Raise maxmemory."
    )


def test_altered_jar_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A jar that does not match the lock is named, and left for the set-up to replace."""
    (tmp_path / "thing-1.0.jar").write_bytes(b"altered")
    jar_set = JarSet("spark", (), transitive=False, jars={"thing-1.0.jar": "0" * 64})
    monkeypatch.setattr(module, "jar_dir", lambda _name: tmp_path)
    monkeypatch.setattr(module, "read_lock", lambda: {"spark": jar_set})
    finding = module._jars("spark")
    assert finding.status is FindingStatus.MISSING
    assert "thing-1.0.jar do not match" in finding.found
    assert (tmp_path / "thing-1.0.jar").is_file()


def test_packages_are_compared_with_the_lock() -> None:
    """A different version and a missing package are reported; a package for another system may be absent."""
    lock = (
        "pytest==0.0.1 \\\n    --hash=sha256:00\n"
        "no-such-package==1.0 \\\n    --hash=sha256:00\n"
        "no-such-windows-package==1.0 ; sys_platform == 'win32' \\\n    --hash=sha256:00\n"
    )
    first, second = package_errors(lock)
    assert first == "no-such-package is not installed"
    assert second.startswith("pytest is ")
    assert second.endswith(", locked 0.0.1")


def test_directory_that_cannot_be_written_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An output directory without write permission is an error with its reason."""

    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module.tempfile, "TemporaryFile", refuse)
    finding = _by_name(diagnose(tmp_path))["output directory"]
    assert finding.status is FindingStatus.MISSING
    assert "Permission denied" in finding.found


def test_clocks_that_are_off_are_reported_with_their_offset() -> None:
    """The largest offsets come first; offsets within the bound are accepted."""
    offsets_ms = {f"b{number}": -number for number in range(8)}
    well, wrong = clocks_finding(offsets_ms), clocks_finding(offsets_ms | {"b3": 2_977})
    assert (well.status, wrong.status) == (FindingStatus.OK, FindingStatus.WARN)
    assert well.found == "to Kafka's: b7 -7 ms, b6 -6 ms, b5 -5 ms, b4 -4 ms, b3 -3 ms, and 3 smaller"
    assert wrong.found.startswith("to Kafka's: b3 +2977 ms, b7 -7 ms")
    assert "500 ms are allowed" in wrong.to_do
