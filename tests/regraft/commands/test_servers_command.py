"""``regraft servers``: two servers for trials that other commands find through one file, stopped by Ctrl-C."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from regraft.cli import app
from regraft.infra.kafka.kafka_clients import is_kafka_ready
from regraft.infra.local.valkey_server import is_redis_ready
from regraft.infra.process.find_port import LOOPBACK, choose_ports
from regraft.settings.run_settings import load_settings
from tests.wait_until import PATIENCE_S


def command(directory: Path, kafka_port: int, valkey_port: int) -> list[str]:
    ports = ("--kafka-port", str(kafka_port), "--valkey-port", str(valkey_port))
    return [sys.executable, "-m", "regraft", "servers", "--directory", str(directory), *ports]


@pytest.fixture
def takes_ctrl_c() -> Iterator[None]:
    """Let children receive SIGINT even if the tests run in the background, which ignores it and passes that on."""
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, earlier)


@pytest.mark.stack
@pytest.mark.usefixtures("takes_ctrl_c")
def test_other_commands_find_the_servers_until_ctrl_c(tmp_path: Path) -> None:
    """The printed file leads to both servers, with Valkey's password, and only its owner may read it."""
    kafka_port, valkey_port = choose_ports(2)
    with subprocess.Popen(
        command(tmp_path, kafka_port, valkey_port), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as servers:
        assert servers.stdout is not None
        printed = [line for _, line in zip(range(5), servers.stdout, strict=False)]
        assert f"Kafka listens on {LOOPBACK}:{kafka_port}, Valkey on {LOOPBACK}:{valkey_port}." in printed[0]
        file = tmp_path / "servers.toml"
        assert f"export REGRAFT_SETTINGS={file}" in "".join(printed)
        assert file.stat().st_mode & 0o777 == 0o600
        made = CliRunner().invoke(app, ["topics", "--create"], env={"REGRAFT_SETTINGS": str(file)})
        assert made.exit_code == 0, made.output
        found = load_settings({}, file)
        assert is_redis_ready(found.redis.url)
        assert not is_redis_ready(f"redis://{LOOPBACK}:{valkey_port}/0")
        children = psutil.Process(servers.pid).children(recursive=True)
        servers.send_signal(signal.SIGINT)
        _, printed = servers.communicate(timeout=PATIENCE_S)
        assert servers.returncode == 0, printed
        assert "Both have stopped." in printed
    _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
    assert [each for each in alive if each.status() != psutil.STATUS_ZOMBIE] == []
    assert not is_kafka_ready(found.kafka.access, 0.5)


def test_a_port_in_use_is_reported_in_one_sentence(tmp_path: Path) -> None:
    """A Kafka already on 9092 is reported with what to do before anything is started."""
    with socket.socket() as rival:
        rival.bind((LOOPBACK, 0))
        rival.listen()
        port = rival.getsockname()[1]
        answer = subprocess.run(
            command(tmp_path, port, port), capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    assert answer.returncode == 1
    (line,) = [line for line in answer.stderr.splitlines() if str(port) in line]
    assert line.startswith(f"Port {port} for ")
    assert "choose another port" in line
