"""The commands ``regraft alerts``: run the stage, print the rules, list alerts, try rules on a recording.

Rules, notification and delivery belong to ``alerts``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regraft.commands.command_options import AsJson, Assignments, Bootstrap, SettingsFile, settings_of
from regraft.commands.print_table import print_table
from regraft.infra.process.exit_codes import EXIT_FAILED
from regraft.schemas.write_times import time_text

if TYPE_CHECKING:
    from regraft.recordings.rehearse_rules import Rehearsal, RehearsalSettings, RehearsedChange
    from regraft.schemas.alert import Alert
    from regraft.settings.run_settings import Settings

READ_S_MAX = 30.0

alerts_app = typer.Typer(
    no_args_is_help=True,
    help="""Alert rules: list them, try them on a recording, show active alerts.

Try rules on a recording before you use them: `regraft alerts test RULES FILE`.""",
)


@alerts_app.command()
def run(bootstrap: Bootstrap = None, settings_file: SettingsFile = None, assignments: Assignments = None) -> None:
    """Run only the alert stage, until Ctrl-C or SIGTERM: evaluates rules on windows, plans and events, and notifies.

    One per namespace: a second one takes over from the first. It resumes where the last one stopped and sends nothing
    twice. Recipients are listed in alerts.targets (apprise URLs) and alerts.webhooks; set them in the environment
    rather than on a command line, as they hold secrets.

    Examples: `REGRAFT_ALERTS__TARGETS='["mailtos://user:password@example.org"]' regraft alerts run`;
    `regraft alerts run --set alerts.rules_file=rules.toml --set 'alerts.quiet_hours=22:00-07:00 Europe/Berlin'`.
    """
    from regraft.infra.process.log_stream import configure_logs
    from regraft.stages.run_stage import run_stage

    settings = settings_of(assignments, settings_file, bootstrap)
    configure_logs(settings.run.log_level)
    raise typer.Exit(run_stage("alert", settings))


@alerts_app.command()
def rules(
    as_json: AsJson = False, settings_file: SettingsFile = None, assignments: Assignments = None
) -> None:  # fmt: skip
    """Check and print the rules in use: the built-in ones, or those of alerts.rules_file.

    Examples: `regraft alerts rules > rules.toml`; `regraft alerts rules --set alerts.rules_file=rules.toml --json`.
    """
    import dataclasses

    from regraft.alerts.read_rules import DEFAULT_RULES, load_rules

    path = settings_of(assignments, settings_file).alerts.rules_file or DEFAULT_RULES
    found = load_rules(path)
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(rule) for rule in found.rules], indent=2))
        return
    typer.echo(path.read_text(encoding="utf-8"), nl=False)


@alerts_app.command(name="list")
def list_alerts(
    count: Annotated[int, typer.Option("--last", min=0, help="How many of the cleared alerts to list.")] = 20,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """List active and recently cleared alerts from Kafka: since when, what, and who was notified.

    Examples: `regraft alerts list`; `regraft alerts list --last 0 --json`.
    """
    from regraft.alerts.show_alerts import alert_entry

    stored = _stored(settings_of(assignments, settings_file, bootstrap))
    newest = sorted(stored, key=lambda alert: (-alert.changed_ms, alert.key))
    active = [alert for alert in newest if alert.is_raised]
    recent = [alert for alert in newest if not alert.is_raised][:count]
    if as_json:
        document = {"active": [alert_entry(alert) for alert in active], "recent": [alert_entry(one) for one in recent]}
        typer.echo(json.dumps(document, indent=2))
        return
    typer.echo(f"{len(active)} active {'alert' if len(active) == 1 else 'alerts'}.")
    if active or recent:
        heads = ("since", "status", "severity", "rule", "subject", "what", "notified")
        rows = [_row(alert) for alert in (*active, *recent)]
        print_table(heads, rows, wraps=["what", "notified"], drops=["notified", "since", "what"])


@alerts_app.command(name="test")
def try_rules(
    rules_file: Annotated[Path, typer.Argument(metavar="RULES", help="The rules, TOML.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A recording, see `regraft record`.")],
    expect: Annotated[
        Path | None,
        typer.Option("--expect", metavar="EXPECTED", help="Compare with this file; exit with 1 if the result differs."),
    ] = None,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="EXPECTED", help="Write the result as a file of expected alerts.")
    ] = None,
    as_json: AsJson = False,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Run rules over a recording in its own time, without Kafka, and show what would be raised and cleared, and when.

    A recording without state (`regraft record` without --all) is aggregated first, with the windows of its run. Times
    are seconds from its start.

    Examples: `regraft alerts test rules.toml out/rec.avro`;
    `regraft alerts test rules.toml out/rec.avro --write expected.toml`, later `--expect expected.toml`.
    """
    from regraft.alerts.read_rules import load_rules
    from regraft.infra.process.show_progress import show_progress
    from regraft.producers.recordings.read_recording import open_recording
    from regraft.recordings.expect_alerts import differences, expected_text, read_expected
    from regraft.recordings.rehearse_rules import rehearse_rules

    settings = settings_of(assignments, settings_file)
    book = load_rules(rules_file)
    expected = None if expect is None else read_expected(expect)
    recording = open_recording(file, settings.recordings)
    with show_progress("Rules over the recording", recording.count) as advance:
        found = rehearse_rules(
            recording,
            book,
            _rehearsal_settings(settings, recording.info.settings),
            lambda done: advance("messages", done),
        )
    for warning in recording.warnings:
        typer.echo(f"Warning: {warning}", err=True)
    if write is not None:
        write.write_text(expected_text(found.changes), encoding="utf-8")
    faults = [] if expected is None else differences(expected, found.changes)
    if as_json:
        typer.echo(json.dumps(_document(found, None if expected is None else faults), indent=2))
    else:
        _show(found)
    for fault in faults:
        typer.echo(f"Not as expected: {fault}.", err=True)
    if faults:
        raise typer.Exit(EXIT_FAILED)


def _stored(settings: Settings) -> list[Alert]:
    """Return the newest record of each alert."""
    from regraft.infra.kafka.read_messages import read_messages
    from regraft.schemas.alert import Alert
    from regraft.schemas.codec import UndecodableRecordError, decode
    from regraft.schemas.topics import ALERTS, topic_name
    from regraft.stages.run_loop import require_kafka

    require_kafka(settings.kafka.access)
    alerts: dict[bytes, Alert] = {}
    for message in read_messages(settings.kafka.access, [topic_name(ALERTS, settings.kafka.namespace)], READ_S_MAX):
        key, value = message.key() or b"", message.value()
        alerts.pop(key, None)
        if value is not None:
            with suppress(UndecodableRecordError):  # the stage reports these
                alerts[key] = decode(value, Alert)
    return list(alerts.values())


def _rehearsal_settings(settings: Settings, recorded: dict[str, Any]) -> RehearsalSettings:
    """Return the alert stage's settings, with the recorded run's windows and bounds unless others are chosen."""
    from regraft.recordings.rehearse_rules import RehearsalSettings

    streaming = recorded.get("streaming", {})
    names = ("window_ms", "grace_ms", "future_ms_max", "past_ms_max")
    recorded_values = {
        name: streaming[name] for name in names if name in streaming and f"streaming.{name}" not in settings.chosen
    }
    streaming = replace(settings.streaming, **recorded_values)
    quiet_hours, quiet_below = settings.alerts.quiet_span, settings.alerts.quiet_below
    return RehearsalSettings(streaming.window_ms, streaming.grace_ms, streaming.bounds, quiet_hours, quiet_below)


def _document(found: Rehearsal, faults: Sequence[str] | None) -> dict[str, Any]:
    document: dict[str, Any] = {
        "begin_ms": found.begin_ms,
        "end_ms": found.end_ms,
        "windows": found.windows,
        "messages": found.messages,
        "undecodable": found.undecodable,
        "is_aggregated": found.is_aggregated,
        "changes": [_change(change) for change in found.changes],
    }
    return document if faults is None else {**document, "differences": list(faults)}


def _change(change: RehearsedChange) -> dict[str, Any]:
    alert = change.alert
    return {
        "at_s": change.at_s,
        "time_ms": alert.changed_ms,
        "rule": alert.rule,
        "subject": alert.subject,
        "status": str(alert.status),
        "severity": str(alert.severity),
        "value": alert.value,
        "text": alert.text,
        "silenced_by": change.silenced_by,
    }


def _show(found: Rehearsal) -> None:
    for change in found.changes:
        alert = change.alert
        about = f"{alert.status:8} {alert.severity:8} {alert.rule} {alert.subject}"
        kept = f" [held back: {change.silenced_by}]" if change.silenced_by else ""
        typer.echo(f"{change.at_s:9.1f} s  {about}: {alert.text}{kept}")
    raised = sum(change.alert.is_raised for change in found.changes)
    source = "made from its telemetry" if found.is_aggregated else "as recorded"
    typer.echo(
        f"{raised} alerts raised, {len(found.changes) - raised} cleared in {found.windows} windows ({source}), "
        f"{(found.end_ms - found.begin_ms) / 1000:.0f} s."
    )
    if found.undecodable:
        typer.echo(f"{found.undecodable} messages were not valid records of their topic and were skipped.", err=True)


def _row(alert: Alert) -> Sequence[str]:
    notified = f"{alert.told}" if alert.told else "nobody"
    ends = ", ".join(f"{one.target} {one.state}" for one in alert.deliveries)
    if alert.silenced_by:
        notified = f"{notified}, held back: {alert.silenced_by}"
    since = alert.raised_ms if alert.is_raised else alert.changed_ms
    return (
        time_text(since),
        str(alert.status),
        str(alert.severity),
        alert.rule,
        alert.subject,
        alert.text,
        f"{notified}; {ends}" if ends else notified,
    )
