"""The command `regraft servers`: a Kafka and a Valkey on this machine, for trials.

Starting them belongs to :mod:`infra.local.local_stack`.
"""

from __future__ import annotations

import os
import shlex
import threading
from pathlib import Path
from typing import Annotated

import typer

KAFKA_PORT, VALKEY_PORT = 9092, 6379


def servers(
    directory: Annotated[Path, typer.Option("--directory", metavar="DIR", help="Directory for data and logs.")] = Path(
        "out/servers"
    ),
    kafka_port: Annotated[int, typer.Option("--kafka-port", min=1, max=65_535, help="Kafka's port.")] = KAFKA_PORT,
    valkey_port: Annotated[int, typer.Option("--valkey-port", min=1, max=65_535, help="Valkey's port.")] = VALKEY_PORT,
    patience: Annotated[
        float, typer.Option("--patience", min=1, max=20, help="Factor on the time that they may take to start.")
    ] = 1.0,
) -> None:
    """Run Kafka and Valkey on this machine for trials, until Ctrl-C or SIGTERM.

    They listen on 127.0.0.1. Their addresses and Valkey's password are written to servers.toml in the directory, along
    with their data and logs: set REGRAFT_SETTINGS to that file, and the other commands find them. Use your own servers
    for anything that others depend on.

    Examples: `regraft servers`; `regraft servers --directory out/lab-servers --kafka-port 19092`.
    """
    from regraft.infra.local.local_stack import BOOTSTRAP_VARIABLE, LocalStack
    from regraft.infra.local.make_certificates import write_private
    from regraft.infra.local.valkey_server import URL_VARIABLES
    from regraft.infra.process.find_extras import require_extras
    from regraft.infra.process.log_stream import configure_logs

    require_extras("The command servers", "valkey")
    configure_logs(level="warning")
    own = {name: value for name, value in os.environ.items() if name not in (BOOTSTRAP_VARIABLE, *URL_VARIABLES)}
    typer.echo("Starting Kafka and Valkey; this takes about 10 seconds.", err=True)
    try:
        with LocalStack(
            directory, kafka_port=kafka_port, redis_port=valkey_port, environ=own, patience=patience
        ) as stack:
            text = f'[kafka]\nbootstrap = "{stack.bootstrap}"\n\n[redis]\nurl = "{stack.redis_url}"\n'
            write_private(directory / "servers.toml", text.encode())
            named = shlex.quote(str(directory.absolute() / "servers.toml"))
            typer.echo(
                f"Kafka listens on {stack.bootstrap}, Valkey on 127.0.0.1:{valkey_port}. In other terminals:\n\n"
                f"    export REGRAFT_SETTINGS={named}\n\nStop both with Ctrl-C."
            )
            threading.Event().wait()
    except KeyboardInterrupt:
        typer.echo("Both have stopped.", err=True)
