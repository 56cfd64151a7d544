"""Write docs/reference.md and docs/settings.md from the code: ``python -m tests.house.write_reference``.

In: the command line, tables of topics and rights, schemas, metrics, kinds of events, verdicts, settings. Out: Markdown.
A test compares the pages with it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import typer
from typer.main import get_command

from regraft.cli import GROUPS, app
from regraft.commands.list_command import described_metrics
from regraft.commands.show_records import SHOWN_TYPES
from regraft.infra.process.exit_codes import MEANINGS
from regraft.schemas import packed_cells, packed_deliveries
from regraft.schemas.event import EventKind
from regraft.schemas.plan import Verdict
from regraft.schemas.registry import AVSC_DIRECTORY, SCHEMAS
from regraft.schemas.topics import TOPICS, Topic
from regraft.settings.run_settings import section_models
from regraft.settings.settings_example import named_models, toml_text
from regraft.settings.settings_model import SettingsModel

ROOT = Path(__file__).parents[2]
HOUR_MS = 3_600_000
MADE = "Made by `python -m tests.house.write_reference`, which a test repeats; do not edit it by hand."

EVENTS: Mapping[EventKind, str] = {
    EventKind.PLAN_PROPOSED: "a plan waits for approval",
    EventKind.PLAN_REFUSED: "an operator refused a plan, or it became stale before it was approved",
    EventKind.PLAN_STARTED: "the first command of a plan is sent",
    EventKind.PLAN_PHASE: "a plan has entered its next phase",
    EventKind.PLAN_COMPLETED: "a plan is verified on later windows, or closed without",
    EventKind.PLAN_ABORTED: "a plan was rolled back before it was committed",
    EventKind.PLAN_STALLED: "a broker has not answered a command within its limit",
    EventKind.GAIN_MISSED: "a plan saves less than its transition cost on the windows after it",
    EventKind.CHANGE_DETECTED: "traffic has changed; decisions look back no further",
    EventKind.MODEL_DRIFT: "a link's measured delay differs from the inventory's",
    EventKind.SHARE_CHANGED: "brokers are asked to report another share of the notifications, and why",
    EventKind.PROPOSAL_REFUSED: "proposals were refused, with the verdict and how often",
    EventKind.WINDOW_INCOMPLETE: "a window closed without some broker in service",
    EventKind.WINDOW_STALE: "the newest window is too old to decide on",
    EventKind.EPOCH_MISMATCH: "brokers report another epoch than the one in force",
    EventKind.MEMBER_CHANGED: "a broker joined, left, died, came back or is leaving",
    EventKind.JOIN_REQUESTED: "a broker that is not a member asks to join",
    EventKind.DEATHS_IMPLAUSIBLE: "too many brokers are silent at once, so none is declared dead",
    EventKind.REPAIR_WAITS: "an overlay that is cut cannot be repaired yet",
    EventKind.CAPS_EXCEEDED: "a repair, join or leave puts brokers above their caps, as it has no choice",
    EventKind.CONTROLLER_STARTED: "a controller leads from now on",
    EventKind.SERVICE_RESTARTED: "a stage or server ended and was restarted",
    EventKind.PLANNER_FAILED: "a planner raised an error; the overlay stays as it is",
    EventKind.TELEMETRY_LOST: "telemetry expired, or its topic was recreated, before it was read",
    EventKind.ORDER_TAKEN: "an operator's order is followed",
    EventKind.ORDER_REFUSED: "an order was refused, with the reason",
    EventKind.BROKERS_CLOSABLE: "brokers serve no clients and could be removed from the overlay",
    EventKind.BROKER_OVERLOADED: "a broker passes more notifications than its cap, or no longer does",
    EventKind.ALERT_RAISED: "an alert rule holds for a subject",
    EventKind.ALERT_CLEARED: "the rule no longer holds",
}
VERDICTS: Mapping[Verdict, str] = {
    Verdict.ACCEPTED: "can enter a plan",
    Verdict.NOT_A_TREE: "the links would not form a tree",
    Verdict.WRONG_HOME: "a client is not at the home that the proposal names, or its new home does not exist",
    Verdict.WRONG_ID: "brokers would not have one ring ID each",
    Verdict.DEGREE: "a broker would have more links than its cap",
    Verdict.CAPACITY: "a broker would serve more than its cap",
    Verdict.CONGESTED: "a congested broker or link would get more load",
    Verdict.STALE_STATE: "the newest window is too old",
    Verdict.EPOCH_MISMATCH: "brokers are at another epoch",
    Verdict.INCOMPLETE_STATE: "a window lacks a broker in service",
    Verdict.GAIN_BELOW_PRICE: "it would not recoup its messages in time",
    Verdict.GAIN_WITHIN_NOISE: "the gain may be luck",
    Verdict.FRAILTY: "a single death would cut off too much for what it saves",
    Verdict.COOL_DOWN: "too soon after the last plan, or after the last change of the same link, ID or home",
    Verdict.MUTED: "a plan of this planner was undone a short time ago",
    Verdict.PLAN_RUNNING: "another plan is under way",
    Verdict.CONFLICT: "it conflicts with what the plan already contains",
    Verdict.CHANGES_PER_PLAN: "the plan is full",
    Verdict.CLIENTS_STAY: "it moves clients of real brokers, which stay where they connect",
    Verdict.MAINTENANCE: "it loads a broker in maintenance",
    Verdict.PAUSED: "an operator paused adaptation",
    Verdict.IN_REVIEW: "another plan waits for approval",
}

COMMON = (
    "run.directory",
    "run.log_level",
    "kafka.bootstrap",
    "kafka.namespace",
    "kafka.security.tls",
    "kafka.security.mechanism",
    "kafka.security.username",
    "kafka.security.password_file",
    "redis.url",
    "orders.trusted_keys_file",
    "spark.master",
    "streaming.window_ms",
    "streaming.grace_ms",
    "controller.planner",
    "controller.shadow_planners",
    "controller.dry_run",
    "controller.act_on_deaths",
    "controller.degree_max",
    "controller.decision.changes_per_plan_max",
    "controller.sampling.share_min",
    "alerts.targets",
    "dashboard.secret_file",
)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table."""
    cells = [[re.sub(r"\s+", " ", cell).replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *cells)]


def commands() -> list[str]:
    """Return all commands by panel, each with the first sentence of its help."""
    group: Any = get_command(app)
    rows = []
    for panel, named in GROUPS.items():
        for name, found in named.items():
            command = group.commands[name]
            rows.append((panel, f"`regraft {name}`", _first_sentence(command.help)))
            rows += [("", f"`regraft {name} {what}`", text) for what, text in _items(command.help)]
            if isinstance(found, typer.Typer):
                rows += [
                    ("", f"`regraft {name} {each}`", _first_sentence(below.help))
                    for each, below in command.commands.items()
                ]
            panel = ""
    return table(("", "command", "what it does"), rows)


def topics() -> list[str]:
    """Return the table of topics, with their writers and readers."""
    rows = (
        (
            f"`{each.suffix}`",
            f"`{each.record}`",
            each.key,
            str(each.partitions),
            _kept(each),
            ", ".join(each.writers),
            ", ".join(each.readers),
        )
        for each in TOPICS
    )
    return table(("topic", "record", "key", "partitions", "kept", "written by", "read by"), rows)


def records() -> list[str]:
    """Return the newest version of each record, with its id, its purpose and its fields."""
    purposes = {record.__name__: _first_sentence(record.__doc__) for record in SHOWN_TYPES.values()}
    newest: dict[str, tuple[int, str]] = {}
    for number, stem in SCHEMAS.items():
        newest[stem.rsplit(".", 1)[0]] = (number, stem)
    rows = []
    for number, stem in newest.values():
        schema = json.loads((AVSC_DIRECTORY / f"{stem}.avsc").read_text(encoding="utf-8"))
        fields = ", ".join(f"`{field['name']}`" for field in schema["fields"])
        purpose = purposes[schema["name"]].replace("``", "`")
        rows.append((f"[`{stem}`](../schemas/avsc/{stem}.avsc)", str(number), purpose, fields))
    return table(("schema", "id", "what it is", "fields"), rows)


def layout(module: ModuleType) -> list[str]:
    """Return a module's description of a packed format: its first paragraphs, its table, and what follows."""
    text = re.sub(r":class:`[\w.]*?(\w+)`", r"`\1`", module.__doc__ or "").replace("``", "`")
    before, *lines, after = re.split(r"^=+[= ]*$", text, flags=re.MULTILINE)
    rows = re.findall(r"^(`\w+`) +([CR] \w+|\w+) +(.+)$", "".join(lines), re.MULTILINE)
    return [before.strip(), "", *table(("column", "type", "what it is"), rows), "", after.strip()]


def metrics() -> list[str]:
    """Return the metrics of all stages."""
    rows = (
        (f"`{each.name}`", each.type, ", ".join(each.labels), each.help)
        for described in described_metrics().values()
        for each in described
    )
    return table(("metric", "type", "labels", "meaning"), rows)


def reference() -> str:
    """Return docs/reference.md."""
    parts = [
        ["# Reference", "", f"Commands, exit codes, topics, records, metrics, events and verdicts. {MADE}"],
        ["All settings are in [settings](settings.md), rights in Kafka in [security](security.md)."],
        ["## Commands", "", "`--help` of each shows its options and examples.", "", *commands()],
        [
            "## Exit codes",
            "",
            "The same for all commands and stages.",
            "",
            *table(("code", "meaning"), ((f"`{code}`", text) for code, text in MEANINGS.items())),
        ],
        [
            "## Kafka topics",
            "",
            "Names begin with the namespace, `regraft.` by default. `regraft topics --acls` lists the rights by role.",
            "",
            *topics(),
        ],
        [
            "## Records",
            "",
            "Avro with Confluent's header of five bytes (0, then the id below). Versions since 0.2.0 are read, too.",
            "",
            *records(),
        ],
        ["### Packed telemetry", "", *layout(packed_cells)],
        ["### Packed deliveries", "", *layout(packed_deliveries)],
        ["## Metrics", "", "Served at `/metrics` of each stage, with `process_...` on top.", "", *metrics()],
        ["## Events", "", *table(("kind", "what happened"), ((f"`{kind}`", text) for kind, text in EVENTS.items()))],
        [
            "## Verdicts",
            "",
            "What the judge says of a proposal. Only what is accepted can enter a plan.",
            "",
            *table(("verdict", "why"), ((f"`{verdict}`", text) for verdict, text in VERDICTS.items())),
        ],
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def settings() -> str:
    """Return docs/settings.md."""
    parts = [
        ["# Settings", "", f"Every setting with its default. {MADE}"],
        [
            "A flag (`--set section.name=value`) wins over the environment (`REGRAFT_SECTION__NAME`), that over a TOML",
            "file (`--settings FILE` or `REGRAFT_SETTINGS`), that over the default. The word `none` means: no value.",
            "`regraft settings --example` prints all of them as a file; `regraft init` writes a short one.",
        ],
    ]
    models = {**section_models(), **named_models()}
    parts += _common(models)
    for name, model in models.items():
        parts += _section(name, model())
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _common(models: Mapping[str, type[SettingsModel]]) -> list[list[str]]:
    """Return the table of the settings that most operators give."""
    rows = []
    for full_name in COMMON:
        section, *path = full_name.split(".")
        model: SettingsModel = models[section]()
        for part in path[:-1]:
            model = getattr(model, part)
        field = type(model).model_fields[path[-1]]
        rows.append((f"`{full_name}`", f"`{toml_text(getattr(model, path[-1]))}`", field.description or ""))
    return [["## Common", "", "What most operators set.", "", *table(("setting", "default", "meaning"), rows)]]


def _section(path: str, model: SettingsModel) -> list[list[str]]:
    rows, nested = [], []
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, SettingsModel):
            nested += _section(f"{path}.{name}", value)
            continue
        rows.append((f"`{name}`", f"`{toml_text(value)}`", field.description or ""))
    own = [[f"## {path}", "", *table(("setting", "default", "meaning"), rows)]] if rows else []
    return own + nested


def _first_sentence(text: str | None) -> str:
    paragraph = (text or "").strip().split("\n\n")[0]
    return re.split(r"(?<=\.)\s+(?=[A-Z])", re.sub(r"\s+", " ", paragraph))[0]


def _items(text: str | None) -> list[tuple[str, str]]:
    """Return what a command does for each value of its argument: the list in its help, without options in brackets."""
    items = re.findall(r"^- `(\w+)`[^:]*: (.+?)(?=^-|\n\n)", text or "", re.MULTILINE | re.DOTALL)
    return [(name, _first_sentence(f"{about[0].upper()}{about[1:]}")) for name, about in items]


def _kept(topic: Topic) -> str:
    return "newest of a key" if topic.retention_ms is None else f"{topic.retention_ms // HOUR_MS} h"


PAGES = {ROOT / "docs" / "reference.md": reference, ROOT / "docs" / "settings.md": settings}


def main() -> int:
    """Write both pages."""
    for page, write in PAGES.items():
        page.write_text(write(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
