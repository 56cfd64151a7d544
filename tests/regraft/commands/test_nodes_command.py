"""`regraft nodes init`: from an inventory and a table to nodes that carry messages."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from regraft.cli import app
from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.local.kafka_server import start_kafka
from regraft.settings.run_settings import SettingsError
from tests.overlay.small_overlays import inventory_of, line_of
from tests.producers.nodes.nats_servers import NatsServer, needs_nats
from tests.producers.nodes.server_process import free_port

RUNNER = CliRunner()
BROKERS = ("b00", "b01", "b02")
WAIT_S = 60.0


def table_of(folder: Path, addresses: dict[str, str], connectors: dict[str, str]) -> Path:
    file = folder / "nodes.csv"
    lines = [f"{broker},{addresses[broker]},{connectors[broker]}\n" for broker in addresses]
    file.write_text("broker,address,connector\n" + "".join(lines))
    return file


def test_folders_are_written_once(tmp_path: Path) -> None:
    """Each is named with where it goes; a second call would replace what may be in use."""
    replace(inventory_of(line_of(3), {}), clients_stay=True).save(tmp_path / "run" / "inventory.json")
    table = table_of(
        tmp_path,
        {broker: f"10.0.0.{place}:7411" for place, broker in enumerate(BROKERS)},
        dict.fromkeys(BROKERS, "nats://127.0.0.1:7422"),
    )
    command = ["nodes", "init", str(table), "--out", str(tmp_path / "my nodes"), "--directory", "/srv/regraft"]
    command += ["--set", f"run.directory={tmp_path / 'run'}"]
    answer = RUNNER.invoke(app, command)
    assert answer.exit_code == 0, answer.output
    assert f"Wrote '{tmp_path}/my nodes/b01': copy its files to /srv/regraft of its machine." in answer.stdout
    assert "Start each node there with: regraft stage node --settings /srv/regraft/node.toml" in answer.stdout
    assert "Note: kafka.bootstrap is 127.0.0.1:9092, because none was given" in answer.stdout
    again = RUNNER.invoke(app, command)
    assert again.exit_code == 2
    assert "already exists: name a different folder with --out" in again.stderr


def test_nodes_need_an_inventory(tmp_path: Path) -> None:
    """As every command does that is about an operator's own brokers."""
    answer = RUNNER.invoke(app, ["nodes", "init", "nodes.csv", "--set", f"run.directory={tmp_path / 'run'}"])
    assert isinstance(answer.exception, SettingsError)
    assert "inventory.json" in answer.exception.errors[0]


@pytest.mark.stack
def test_what_is_written_starts_nodes_that_carry_messages(tmp_path: Path) -> None:
    """Copied to their machines, folders are all that nodes need beside their NATS servers and Kafka."""
    needs_nats()
    servers = {broker: NatsServer(broker, tmp_path).start() for broker in BROKERS}
    nodes: list[subprocess.Popen[bytes]] = []
    try:
        with start_kafka(tmp_path / "kafka") as kafka:
            create_topics(kafka.access, namespace="fleet")
            machines = _machines(tmp_path, servers, kafka.bootstrap)
            for broker, machine in machines.items():
                command = [sys.executable, "-m", "regraft", "stage", "node", "--settings", str(machine / "node.toml")]
                with (tmp_path / f"{broker}.out").open("ab") as log:
                    nodes.append(subprocess.Popen(command, stdout=log, stderr=log, env=os.environ))
            asyncio.run(_carry(servers, machines))
    finally:
        for node in nodes:
            node.kill()
            node.wait(WAIT_S)
        for server in servers.values():
            server.stop()


def _machines(folder: Path, servers: dict[str, NatsServer], bootstrap: str) -> dict[str, Path]:
    """Return a directory for each broker, with what `nodes init` wrote, copied to where its settings say."""
    made = RUNNER.invoke(app, ["inventory", "make", "--brokers", ",".join(BROKERS), "--out", str(folder / "i.json")])
    assert made.exit_code == 0, made.output
    machines: dict[str, Path] = {}
    addresses = {broker: f"127.0.0.1:{free_port()}" for broker in BROKERS}
    connectors = {broker: server.leaf_url for broker, server in servers.items()}
    table = table_of(folder, addresses, connectors)
    for broker in BROKERS:
        out, machine = folder / f"out-{broker}", folder / f"machine {broker}"
        command = ["nodes", "init", str(table), "--inventory", str(folder / "i.json"), "--out", str(out)]
        command += ["--directory", str(machine), "--bootstrap", bootstrap, "--set", "kafka.namespace=fleet"]
        answer = RUNNER.invoke(app, command)
        assert answer.exit_code == 0, answer.output
        shutil.copytree(out / broker, machine)
        machines[broker] = machine
    return machines


async def _carry(servers: dict[str, NatsServer], machines: dict[str, Path]) -> None:
    """Publish at the first server until the last one's subscriber has a message."""
    import nats

    came: list[Any] = []
    subscriber, publisher = [await nats.connect(servers[broker].url) for broker in (BROKERS[-1], BROKERS[0])]

    async def take(message: Any) -> None:
        came.append(message.data)

    await subscriber.subscribe("data.>", cb=take)
    await subscriber.flush()

    async def publish() -> None:
        while not came:
            await publisher.publish("data.x", b"carried")
            await asyncio.sleep(0.1)

    await asyncio.wait_for(publish(), WAIT_S)
    assert came[0] == b"carried"
    assert all((machine / f"node-{broker}.json").exists() for broker, machine in machines.items())
    await subscriber.close()
    await publisher.close()
