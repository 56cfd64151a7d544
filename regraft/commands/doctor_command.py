"""The command `regraft doctor`: what this machine lacks, and what is wrong with the configured servers.

The checks belong to :mod:`infra.local.doctor`.
"""

from __future__ import annotations

import json

import typer

from regraft.commands.command_options import AsJson, Assignments, Bootstrap, SettingsFile, settings_of
from regraft.commands.print_table import print_table
from regraft.infra.process.exit_codes import EXIT_FAILED


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
