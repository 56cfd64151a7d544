"""The local stack as a whole: what prevents its start, and that two of them do not interfere."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import is_kafka_ready
from regraft.infra.local.local_stack import LocalStack, RunDirInUseError
from regraft.infra.local.service import Service, ServiceEventKind
from regraft.infra.local.valkey_server import is_redis_ready
from regraft.infra.process.check_disk import DiskFullError
from regraft.infra.process.find_port import LOOPBACK, PortInUseError
from regraft.infra.process.hold_lock import hold_lock
from regraft.infra.process.stack_error import StackError
from tests.full_disk import small_disk

ROOT = Path(__file__).parents[2]
ENOUGH_S = 60.0


def test_run_directory_in_use_is_one_sentence(tmp_path: Path) -> None:
    """A second run in the same directory is refused, and the error names the process that uses it."""
    with (
        hold_lock(tmp_path / "run.lock"),
        pytest.raises(RunDirInUseError, match=rf"^Run directory .* is in use by process {os.getpid()}: .*\.$"),
    ):
        LocalStack(tmp_path).__enter__()


def test_full_disk_stops_the_start(tmp_path: Path) -> None:
    """With less space than required nothing is started and nothing is written."""
    with pytest.raises(DiskFullError):
        LocalStack(tmp_path / "run", free_mb_min=10**12).__enter__()
    assert not (tmp_path / "run").exists()


def test_an_actually_full_disk_stops_the_start(tmp_path: Path) -> None:
    """On a full disk neither Kafka nor Valkey is started, and the reason is one sentence with what to do."""
    with small_disk(tmp_path / "disk") as disk:
        disk.fill()
        with pytest.raises(DiskFullError, match=r"^Only 0 MB are free .* at least 500 MB are needed: free some space"):
            LocalStack(disk.directory / "run", environ={}).__enter__()
        assert [path.name for path in disk.directory.iterdir()] == ["filler"]


@pytest.mark.stack
def test_the_run_directory_may_have_any_name(tmp_path: Path) -> None:
    """Spaces, quotes, signs of URIs, escapes, variables and foreign letters: secured servers start and answer."""
    directory = tmp_path / """my "run's" 100%20 #1? a\\tb ${x} łódź"""
    with LocalStack(directory, environ={}, secure=True) as stack:
        assert is_kafka_ready(KafkaAccess(stack.bootstrap, security=stack.kafka_security), ENOUGH_S)
        assert is_redis_ready(stack.redis_url, ENOUGH_S, stack.redis_security)
    assert (directory / "kafka" / "kafka.log").stat().st_size > 0


def test_a_requested_port_in_use_stops_the_start(tmp_path: Path) -> None:
    """A requested Kafka port that is taken is reported, and the run directory is free again afterwards."""
    with socket.socket() as rival:
        rival.bind((LOOPBACK, 0))
        rival.listen()
        with pytest.raises(PortInUseError):
            LocalStack(tmp_path, kafka_port=rival.getsockname()[1], environ={}).__enter__()
    with hold_lock(tmp_path / "run.lock"):
        pass


def test_external_kafka_that_does_not_answer_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Kafka that the user names is used, never replaced: if it is down, that is the error."""
    monkeypatch.setattr("regraft.infra.local.local_stack.EXTERNAL_TIMEOUT_S", 0.2)
    with pytest.raises(StackError, match="REGRAFT_KAFKA_BOOTSTRAP"):
        LocalStack(tmp_path, environ={"REGRAFT_KAFKA_BOOTSTRAP": f"{LOOPBACK}:1"}).__enter__()


@pytest.mark.parametrize("variable", ["REGRAFT_KAFKA_BOOTSTRAP", "REGRAFT_REDIS_URL"])
def test_servers_of_the_user_are_not_secured(tmp_path: Path, variable: str) -> None:
    """The error names the server before anything is started; no address is shown."""
    stack = LocalStack(tmp_path / "run", secure=True, environ={variable: "redis://:secret@127.0.0.1:9"})
    wanted = f"--secure applies only to servers that Regraft starts, and {variable} names your own"
    with pytest.raises(StackError, match=wanted) as caught:
        stack.__enter__()
    assert "secret" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_stack_that_was_not_entered_has_no_supervisor(tmp_path: Path) -> None:
    """The supervisor exists only while the stack runs."""
    with pytest.raises(RuntimeError, match="not running"):
        _ = LocalStack(tmp_path).supervisor


@pytest.mark.stack
def test_two_stacks_at_once_do_not_interfere(tmp_path: Path) -> None:
    """Two stacks in different directories have their own addresses and serve side by side; both stop properly."""
    with LocalStack(tmp_path / "one", environ=os.environ) as one, LocalStack(tmp_path / "two") as two:
        assert one.bootstrap != two.bootstrap
        assert one.redis_url != two.redis_url
        for stack in (one, two):
            assert is_kafka_ready(KafkaAccess(stack.bootstrap))
            assert is_redis_ready(stack.redis_url)
        script = "import os; print(os.environ['REGRAFT_KAFKA_BOOTSTRAP'], os.environ['REGRAFT_REDIS_URL'])"
        log_file = tmp_path / "two" / "logs" / "asker.log"
        two.add(Service("asker", (sys.executable, "-c", script), log_file, finishes=True))
        assert two.supervisor.wait_end("asker", ENOUGH_S) == 0
        addresses = log_file.read_text().split()
        assert addresses == [two.bootstrap, two.redis_url]
    stopped = [event.service for event in one.supervisor.events if event.kind is ServiceEventKind.STOPPED]
    assert stopped == ["valkey", "kafka"]


STACK_SCRIPT = """
import os, sys, time
from pathlib import Path
from regraft.infra.local.local_stack import LocalStack
with LocalStack(Path(sys.argv[1])) as stack:
    kafka, valkey = stack.supervisor.pid("kafka"), stack.supervisor.pid("valkey")
    os.write(1, f"\\nPIDS {kafka} {valkey}\\n".encode())  # one write: no log line comes into it
    time.sleep(600)
"""


@pytest.mark.stack
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_no_server_outlives_its_run(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """Whether a run is stopped or killed, its servers are gone, and the directory can be used again."""
    command = [sys.executable, "-c", STACK_SCRIPT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as run:
        assert run.stdout is not None
        line = next(line for line in run.stdout if line.startswith("PIDS "))
        servers = [psutil.Process(int(pid)) for pid in line.split()[1:]]
        run.send_signal(number)
        assert run.wait(ENOUGH_S) == code
    _, alive = psutil.wait_procs(servers, timeout=ENOUGH_S)
    assert [each for each in alive if each.status() != psutil.STATUS_ZOMBIE] == []
    with hold_lock(tmp_path / "run.lock"):
        pass
