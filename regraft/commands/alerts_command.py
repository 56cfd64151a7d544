"""The commands ``regraft alerts``: print the rules, list alerts, try rules on a recording.

Rules, notification and delivery belong to ``alerts``, running the stage to :mod:`regraft.commands.stage_command`.
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
from regraft.commands.print_table import print_table, print_text
from regraft.schemas.texts import time_text

if TYPE_CHECKING:
    from regraft.recordings.rehearse_rules import Rehearsal, RehearsalSettings, RehearsedChange
    from regraft.schemas.alert import Alert
    from regraft.settings.run_settings import Settings

READ_S_MAX = 30.0

alerts_app = typer.Typer(
    no_args_is_help=True,
    help="""List alert rules, try them on a recording, and show active alerts.

Try rules on a recording before you use them: `regraft alerts rules RULES FILE`.""",
)


@alerts_app.command()
def rules(
    rules_file: Annotated[
        Path | None,
        typer.Argument(metavar="RULES", help="Rules file (TOML); default: alerts.rules_file, else the built-in rules."),
    ] = None,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Recording to try them on (see `regraft record`).")
    ] = None,
    as_json: AsJson = False,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Check and print alert rules; with a recording, show the alerts that they would raise and clear, and when.

    Rules run on the recording in its own time, without Kafka. A recording without state (`regraft record` without
    --all) is aggregated first, with the windows of its run. Times are seconds from its start.

    Examples: `regraft alerts rules > rules.toml`; `regraft alerts rules rules.toml --json`;
    `regraft alerts rules rules.toml out/rec.avro`.
    """
    settings = settings_of(assignments, settings_file)
    if rules_file is not None and file is not None:
        _try_rules(settings, rules_file, file, as_json=as_json)
        return
    _print_rules(rules_file or settings.alerts.rules_file, as_json=as_json)


def _print_rules(rules_file: Path | None, *, as_json: bool) -> None:
    import dataclasses

    from regraft.alerts.read_rules import DEFAULT_RULES, load_rules

    path = rules_file or DEFAULT_RULES
    book = load_rules(path)
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(rule) for rule in book.rules], indent=2))
        return
    typer.echo(path.read_text(encoding="utf-8-sig"), nl=False)


@alerts_app.command(name="list")
def list_alerts(
    count: Annotated[int, typer.Option("--last", min=0, help="Number of cleared alerts to list.")] = 20,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """List active and recently cleared alerts from Kafka: time, message, and who was notified.

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
        heads = ("since", "status", "severity", "rule", "subject", "message", "notified")
        rows = [_row(alert) for alert in (*active, *recent)]
        print_table(heads, rows, wraps=["message", "notified"], drops=["notified", "since", "message"])


def _try_rules(settings: Settings, rules_file: Path, file: Path, *, as_json: bool) -> None:
    """Run rules over a recording and print what they raise."""
    from regraft.alerts.read_rules import load_rules
    from regraft.infra.process.show_progress import show_progress
    from regraft.producers.recordings.read_recording import open_recording
    from regraft.recordings.rehearse_rules import rehearse_rules

    book = load_rules(rules_file)
    recording = open_recording(file, settings.recordings)
    with show_progress("Rules on the recording", recording.count) as advance:
        rehearsal = rehearse_rules(
            recording,
            book,
            _rehearsal_settings(settings, recording.info.settings),
            lambda done: advance("messages", done),
        )
    for warning in recording.warnings:
        print_text(f"Warning: {warning}", err=True)
    if as_json:
        typer.echo(json.dumps(_document(rehearsal), indent=2))
    else:
        _show(rehearsal)


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


def _document(rehearsal: Rehearsal) -> dict[str, Any]:
    return {
        "begin_ms": rehearsal.begin_ms,
        "end_ms": rehearsal.end_ms,
        "windows": rehearsal.windows,
        "messages": rehearsal.messages,
        "undecodable": rehearsal.undecodable,
        "is_aggregated": rehearsal.is_aggregated,
        "changes": [_change(change) for change in rehearsal.changes],
    }


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


def _show(rehearsal: Rehearsal) -> None:
    for change in rehearsal.changes:
        alert = change.alert
        about = f"{alert.status:8} {alert.severity:8} {alert.rule} {alert.subject}"
        kept = f" [held back: {change.silenced_by}]" if change.silenced_by else ""
        print_text(f"{change.at_s:9.1f} s  {about}: {alert.text}{kept}")
    raised = sum(change.alert.is_raised for change in rehearsal.changes)
    source = "made from its telemetry" if rehearsal.is_aggregated else "as recorded"
    typer.echo(
        f"{raised} alerts raised, {len(rehearsal.changes) - raised} cleared in {rehearsal.windows} windows ({source}), "
        f"{(rehearsal.end_ms - rehearsal.begin_ms) / 1000:.0f} s."
    )
    if rehearsal.undecodable:
        typer.echo(
            f"{rehearsal.undecodable} messages were not valid records of their topic and were skipped.", err=True
        )


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
