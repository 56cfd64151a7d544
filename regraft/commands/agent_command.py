"""The command `regraft agent`: an agent beside clients, so that plans can move them. Sessions belong to producers."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Annotated

import typer


def agent(
    broker: Annotated[str, typer.Option("--broker", metavar="NAME", help="Broker at which clients begin.")],
    brokers: Annotated[
        Path, typer.Option("--brokers", metavar="FILE", help="Where clients connect to each broker, as JSON.")
    ] = Path("brokers.json"),
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Where clients connect to it.",
            show_default="127.0.0.1:4222 with NATS, 127.0.0.1:1883 with MQTT",
        ),
    ] = "",
    name: Annotated[
        str | None, typer.Option("--name", help="The agent's name, unique in the overlay; default: the host's.")
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option("--ca-file", help="CAs of brokers with tls:// or mqtts://; default: the system's."),
    ] = None,
    certificate_file: Annotated[
        Path | None, typer.Option("--certificate-file", help="The agent's certificate for clients with TLS.")
    ] = None,
    key_file: Annotated[Path | None, typer.Option("--key-file", help="Private key of that certificate.")] = None,
    metrics_port: Annotated[
        int | None, typer.Option("--metrics-port", min=1, max=65_535, help="Port of /metrics, /health and /ready.")
    ] = None,
) -> None:
    """Run an agent beside clients of NATS or MQTT, so that plans can move them; until Ctrl-C or SIGTERM.

    Clients connect to the agent instead of their broker, and change nothing else. It opens a connection for each
    client, with that client's own login, and passes everything on until a node brings an order. It needs no Kafka. See
    docs/agents.md for what it promises, and which clients stay. The addresses of brokers say which protocol it speaks.

    Examples: `regraft agent --broker b04`, with brokers.json `{"b04": "nats://10.0.0.4:4222", "b05":
    "nats://10.0.0.5:4222"}`; `regraft agent --broker b04 --listen 0.0.0.0:4223 --certificate-file agent.pem --key-file
    agent.key`.
    """
    from regraft.infra.process.end_on_sigterm import stop_on_signals
    from regraft.infra.process.log_stream import configure_logs
    from regraft.producers.run_agent import AgentOptions, run_agent

    configure_logs("info")
    own = name or re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname().partition(".")[0])[:40]
    options = AgentOptions(own, broker, brokers, listen, ca_file, certificate_file, key_file, metrics_port)
    with stop_on_signals() as stop:
        run_agent(options, stop)
