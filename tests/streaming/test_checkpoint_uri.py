"""A checkpoint in Hadoop's file systems: on a disk by its URI, and on a store that is not a disk for Hadoop."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from regraft.infra.local.hadoop_path import HadoopPath, NoFileSystemError
from regraft.schemas.status_file import replace_file
from regraft.streaming.decide_closing import ClosingRule, has_uncommitted_batch, starting_rule
from regraft.streaming.job_errors import EXIT_REFUSED, StreamingJobError
from regraft.streaming.open_checkpoint import MARKER, CheckpointMismatchError, archive_checkpoint, open_checkpoint
from regraft.streaming.run_job import run_job
from regraft.streaming.source_topics import added_brokers
from regraft.streaming.streaming_settings import DRIVER_JAVA_OPTIONS, LOCAL_MANAGER, SPARK_SETTINGS, StreamingSettings
from regraft.streaming.submit_job import parse_settings
from tests.streaming.mount_store import mounted


def test_only_a_disk_gets_the_checkpoint_manager_made_for_disks(tmp_path: Path) -> None:
    """Elsewhere Spark's or the operator's choice writes the checkpoint; all other session settings are the same."""
    job = StreamingSettings("none:1", tmp_path)
    ours = {name: value for name, value in SPARK_SETTINGS.items() if name != DRIVER_JAVA_OPTIONS}
    assert job.session_options == replace(job, checkpoint_uri="file:///data").session_options == ours
    others = replace(job, checkpoint_uri="hdfs://name/path").session_options
    assert others == {name: value for name, value in ours.items() if name != LOCAL_MANAGER[0]}


@pytest.mark.parametrize("uri", ["checkpoint", "/data/checkpoint", "hdfs://", "s3a:bucket"])
def test_an_invalid_uri_is_refused(tmp_path: Path, uri: str) -> None:
    """Neither a plain directory nor a scheme alone is a URI."""
    [error] = StreamingSettings("none:1", tmp_path, checkpoint_uri=uri).errors()
    assert error.startswith(f"checkpoint_uri is {uri!r}: it must be a scheme and an absolute path")


def test_spark_submit_accepts_directories_and_uris(tmp_path: Path) -> None:
    """A value with a scheme is a URI; the job's local files are then where the settings say."""
    given = ["--bootstrap", "h:1", "--checkpoint"]
    assert parse_settings([*given, "c"]) == StreamingSettings("h:1", Path("c"))
    at_uri = parse_settings([*given, "s3a://b/c", "--directory", str(tmp_path)])
    assert at_uri == StreamingSettings("h:1", tmp_path, checkpoint_uri="s3a://b/c")
    assert at_uri.members_file == tmp_path / "members.json"
    assert str(at_uri.query_directory).startswith("s3a://b/c/v")


@pytest.fixture(params=["file", "viewfs"])
def job(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> StreamingSettings:
    """Settings with a checkpoint on a disk that Hadoop knows as one, or mounted into another of its file systems."""
    at = (tmp_path / "checkpoint").as_uri() if request.param == "file" else mounted(spark, tmp_path / "mounted")
    return StreamingSettings("none:1", tmp_path, checkpoint_uri=at)


@pytest.mark.spark
def test_small_files_are_replaced_and_read_as_on_a_disk(job: StreamingSettings) -> None:
    """The last content written is read, no other file remains next to it, and a missing file is reported as such."""
    file = HadoopPath(job.checkpoint_uri) / "file.json"
    for text in ("old", "new, and longer"):
        replace_file(file, text)
        assert file.read_text() == text
    assert [each.name for each in file.parent.iterdir()] == ["file.json"]
    assert file.exists()
    assert not file.is_dir()
    file.unlink()
    file.unlink(missing_ok=True)
    for missing in (file.read_bytes, file.unlink, lambda: list((file.parent / "none").iterdir())):
        with pytest.raises(FileNotFoundError):
            missing()


@pytest.mark.spark
def test_a_checkpoint_is_recognised(job: StreamingSettings) -> None:
    """It is marked, refused for other settings, keeps the rule of its last query, and is archived as a whole."""
    open_checkpoint(job)
    open_checkpoint(job)
    with pytest.raises(CheckpointMismatchError, match=f"{job.checkpoint_uri} was written with window_ms 5000 instead"):
        open_checkpoint(replace(job, window_ms=10_000))
    rule, other = ClosingRule(500, False), ClosingRule(60_000, False)
    assert starting_rule(job, rule) == (rule, False)
    replace_file(job.query_directory / "offsets" / "0", "v1")
    assert has_uncommitted_batch(job)
    assert starting_rule(job, other) == (rule, True)
    for text in ("first", "second"):
        replace_file(job.query_directory / "metadata", text)
        replace_file(job.position_file, "{}")
        archived = archive_checkpoint(job)
        assert (archived / "metadata").read_text() == text
        assert not job.query_directory.exists()
        assert not job.position_file.exists()
    assert not has_uncommitted_batch(job)
    (job.checkpoint / MARKER).unlink()
    with pytest.raises(CheckpointMismatchError, match=r"not empty and has no query\.json"):
        open_checkpoint(job)


@pytest.mark.spark
def test_another_machine_knows_the_added_brokers(job: StreamingSettings, tmp_path: Path) -> None:
    """A micro-batch that is run again elsewhere knows the same brokers; those of another checkpoint are dropped."""
    job.members_file.write_text('{"of": "another"}')
    open_checkpoint(job)
    assert added_brokers(job) == {}
    assert job.members_copy is not None
    replace_file(job.members_copy, '{"b9": "west"}')
    there = replace(job, checkpoint_directory=tmp_path / "another-machine")
    open_checkpoint(there)
    assert added_brokers(there) == {"b9": "west"}


@pytest.mark.spark
@pytest.mark.parametrize("uri", ["s3a://bucket/checkpoint", "nowhere://host/checkpoint"])
def test_a_store_unknown_to_sparks_java_is_reported(spark: SparkSession, tmp_path: Path, uri: str) -> None:
    """One sentence has the URI, Java's reason and what to do; other errors of a store are reported separately."""
    job = StreamingSettings("none:1", tmp_path, checkpoint_uri=uri)
    with pytest.raises(NoFileSystemError):
        HadoopPath(uri).exists()
    reason = rf"no file system for {uri} \(.*\): put its jars on the class path of driver and executors"
    with pytest.raises(StreamingJobError, match=reason) as caught:
        run_job(spark, job, threading.Event())
    assert caught.value.exit_code == EXIT_REFUSED
    with pytest.raises(StreamingJobError, match=r"file:///proc/none.* cannot be written") as caught:
        run_job(spark, replace(job, checkpoint_uri="file:///proc/none"), threading.Event())
    assert caught.value.exit_code == EXIT_REFUSED
