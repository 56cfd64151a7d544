"""``regraft doctor`` and ``regraft servers``: what this machine lacks, and a Kafka and a Valkey on it for trials.

The checks belong to :mod:`infra.local.doctor`, starting servers to :mod:`infra.local.local_stack`.
"""

from __future__ import annotations

import json
import os
import shlex
import threading
from pathlib import Path
from typing import Annotated

import typer

from regraft.commands.command_options import AsJson, Assignments, Bootstrap, SettingsFile, settings_of
from regraft.commands.float_option import float_option
from regraft.commands.print_table import print_table
from regraft.infra.process.exit_codes import EXIT_FAILED

KAFKA_PORT, VALKEY_PORT = 9092, 6379


def doctor(
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Check this machine, and explain how to fix each problem.

    If Kafka or Valkey is configured, the check includes its name, port, TLS, certificate, login and topic rights.
    Changes nothing. Exits with 1 if something is missing.

    Examples: `regraft doctor`; `regraft doctor --bootstrap kafka:9093 --settings regraft.toml`.
    """
    from regraft.infra.live.redis_access import RedisAccess
    from regraft.infra.local.doctor import FindingStatus, diagnose
    from regraft.infra.local.valkey_server import external_redis_url
    from regraft.settings.place_demo import agents_of

    settings = settings_of(assignments, settings_file, bootstrap)
    kafka, external = settings.kafka, external_redis_url()
    findings = diagnose(
        kafka=kafka.access if "kafka.bootstrap" in settings.chosen else None,
        namespace=kafka.namespace,
        agents=agents_of(settings),
        redis=settings.redis.access or (RedisAccess(external) if external else None),
        secret_files=settings.secret_files,
    )
    if as_json:
        fields = [
            {"name": each.name, "status": str(each.status), "found": each.found, "to_do": each.to_do}
            for each in findings
        ]
        typer.echo(json.dumps(fields, indent=2))
    else:
        rows = [(each.name, str(each.status), each.found, each.to_do) for each in findings]
        print_table(("check", "state", "found", "remedy"), rows, wraps=["found", "remedy"])
    if any(each.status is FindingStatus.MISSING for each in findings):
        raise typer.Exit(EXIT_FAILED)


def servers(
    directory: Annotated[Path, typer.Option("--directory", metavar="DIR", help="Directory for data and logs.")] = Path(
        "out/servers"
    ),
    kafka_port: Annotated[int, typer.Option("--kafka-port", min=1, max=65_535, help="Kafka's port.")] = KAFKA_PORT,
    valkey_port: Annotated[int, typer.Option("--valkey-port", min=1, max=65_535, help="Valkey's port.")] = VALKEY_PORT,
    patience: Annotated[
        float, float_option("--patience", min=1, max=20, help="Factor on the time that they may take to start.")
    ] = 1.0,
) -> None:
    """Run Kafka and Valkey on this machine for trials, until Ctrl-C or SIGTERM.

    They listen on 127.0.0.1. Their addresses and Valkey's password are written to servers.toml in the directory, along
    with their data and logs: set REGRAFT_SETTINGS to that file, and the other commands find them. Use your own servers
    for anything that others depend on.

    Examples: `regraft servers`; `regraft servers --directory out/lab-servers --kafka-port 19092`.
    """
    from regraft.infra.local.local_stack import BOOTSTRAP_VARIABLE, LocalStack
    from regraft.infra.local.valkey_server import URL_VARIABLES
    from regraft.infra.process.find_extras import require_extras
    from regraft.infra.process.log_stream import configure_logs
    from regraft.infra.process.write_private import write_private

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
