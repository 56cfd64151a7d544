"""Write docs/reference.md, settings.md and wire.md from the code: ``python -m tests.house.write_reference``.

In: the command line, the topics, schemas, kinds of events, verdicts, settings, examples. Out: Markdown.
A test compares the pages with it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import typer
from typer.main import get_command

from regraft.cli import GROUPS, app
from regraft.commands.show_records import SHOWN_TYPES
from regraft.infra.process.exit_codes import MEANINGS
from regraft.schemas import packed_cells
from regraft.schemas.event import EventKind
from regraft.schemas.plan import Verdict
from regraft.schemas.registry import AVSC_DIRECTORY, SCHEMAS
from regraft.schemas.topics import TOPICS, Topic
from regraft.settings.run_settings import section_models
from regraft.settings.settings_example import named_models, toml_text
from regraft.settings.settings_model import SettingsModel

ROOT = Path(__file__).parents[2]
HOUR_MS = 3_600_000
EXAMPLES = ROOT / "tests" / "house" / "example_outputs.txt"
WIRE_PICTURE = ROOT / "tests" / "house" / "wire_picture.txt"
MADE = "<!-- Written by `python -m tests.house.write_reference`, which a test repeats; do not edit it by hand. -->"

EVENTS: Mapping[EventKind, str] = {
    EventKind.PLAN_PROPOSED: "a plan waits for approval",
    EventKind.PLAN_REFUSED: "an operator refused a plan, or it became stale",
    EventKind.PLAN_STARTED: "the first command of a plan is sent",
    EventKind.PLAN_PHASE: "a plan has entered its next phase",
    EventKind.PLAN_COMPLETED: "a plan has been verified, or closed without verification",
    EventKind.PLAN_ABORTED: "a plan was rolled back before it was committed",
    EventKind.PLAN_STALLED: "a broker has not answered a command within its limit",
    EventKind.GAIN_MISSED: "a plan saves less than its transition cost",
    EventKind.CHANGE_DETECTED: "traffic has changed",
    EventKind.MODEL_DRIFT: "the measured delay of a link differs from the inventory's",
    EventKind.SHARE_CHANGED: "brokers are asked to report a different share of the notifications",
    EventKind.PROPOSAL_REFUSED: "proposals were refused, with verdicts",
    EventKind.WINDOW_INCOMPLETE: "a window closed without data from every broker in service",
    EventKind.WINDOW_STALE: "the newest window is too old to decide on",
    EventKind.EPOCH_MISMATCH: "brokers report an epoch other than the one in force",
    EventKind.MEMBER_CHANGED: "a broker joined, left, died, came back or is leaving",
    EventKind.JOIN_REQUESTED: "a broker that is not a member asks to join",
    EventKind.DEATHS_IMPLAUSIBLE: "too many brokers fell silent at once; none is declared dead",
    EventKind.REPAIR_WAITS: "an overlay that is cut cannot be repaired yet",
    EventKind.CAPS_EXCEEDED: "a repair, join or leave has to put brokers above their caps",
    EventKind.CONTROLLER_STARTED: "a controller leads from now on",
    EventKind.SERVICE_RESTARTED: "a stage or server exited and was restarted",
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
    Verdict.WRONG_HOME: "a client is not at the home that the proposal names, or the new home does not exist",
    Verdict.WRONG_ID: "brokers would not have one ring ID each",
    Verdict.DEGREE: "a broker would have more links than its cap",
    Verdict.CAPACITY: "a broker would serve more than its cap",
    Verdict.CONGESTED: "a congested broker or link would get more load",
    Verdict.STALE_STATE: "the newest window is too old",
    Verdict.EPOCH_MISMATCH: "brokers are at a different epoch",
    Verdict.INCOMPLETE_STATE: "a window lacks a broker in service",
    Verdict.GAIN_BELOW_PRICE: "it would not recoup its messages in time",
    Verdict.GAIN_WITHIN_NOISE: "the gain may be due to chance",
    Verdict.FRAILTY: "a single death would cut off too much for what it saves",
    Verdict.COOL_DOWN: "too soon after the last change of the same link, ID or home",
    Verdict.MUTED: "a plan of this planner was undone a short time ago",
    Verdict.PLAN_RUNNING: "another plan is under way",
    Verdict.CONFLICT: "it conflicts with another change of the plan",
    Verdict.CHANGES_PER_PLAN: "the plan is full",
    Verdict.CLIENTS_STAY: "it moves clients of real brokers without an agent",
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
    "controller.planner",
    "controller.shadow_planners",
    "controller.dry_run",
    "controller.act_on_deaths",
    "controller.degree_max",
    "controller.decision.changes_per_plan_max",
    "alerts.targets",
    "dashboard.secret_file",
)
SETTINGS_HEAD = ("setting", "default", "meaning")
# How the tables follow each other: what operators set before what researchers do.
SECTIONS = (
    *("run", "kafka", "redis", "orders", "node", "connectors", "streaming", "spark", "controller"),
    *("alerts", "dashboard"),
)
FOR_RESEARCHERS = ("planners", "demo", "emulator")  # `regraft settings --example` prints them.
VARIABLES: Mapping[str, str] = {
    "REGRAFT_SECTION__NAME": "any setting; two underscores stand for each dot, lists are JSON",
    "REGRAFT_SETTINGS": "the settings file that every command reads",
    "REGRAFT_KAFKA_BOOTSTRAP": "short for `kafka.bootstrap`",
    "REGRAFT_KAFKA_NAMESPACE": "short for `kafka.namespace`",
    "REGRAFT_REDIS_URL": "short for `redis.url`",
    "REGRAFT_CACHE": "directory of jars and archives; by default `.cache` of the checkout, else the user's cache",
    "REGRAFT_IVY_SETTINGS": "Ivy's settings file, to fetch jars from a mirror",
    "REGRAFT_SCHEMA_REGISTRY_URL": "a Confluent-compatible schema registry to use",
    "REGRAFT_SCHEMA_REGISTRY_USERNAME": "its user",
    "REGRAFT_SCHEMA_REGISTRY_PASSWORD_FILE": "the file with its password",
    "REGRAFT_SCHEMA_REGISTRY_PASSWORD_VARIABLE": "the variable with its password",
    "JAVA_HOME": "the Java to use; otherwise the one on `PATH`",
    "SPARK_CONF_DIR": "directory of `spark-defaults.conf`",
}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table."""
    cells = [[re.sub(r"\s+", " ", cell).replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *cells)]


def commands() -> list[str]:
    """Return all commands, a table for each panel, with the first clause of their help; groups by their commands."""
    group: Any = get_command(app)
    lines = []
    for panel, named in GROUPS.items():
        rows = []
        for name, found in named.items():
            command = group.commands[name]
            if isinstance(found, typer.Typer):
                below = command.commands.items()
                rows += [(f"`regraft {name} {each}`", _first_clause(one.help)) for each, one in below]
                continue
            items = [(f"`regraft {name} {what}`", text) for what, text in _items(command.help)]
            rows += items or [(f"`regraft {name}`", _first_clause(command.help))]
        lines += [f"**{panel}**", "", *table(("command", "what it does"), rows), ""]
    return lines[:-1]


def topics() -> list[str]:
    """Return the table of topics."""
    rows = ((f"`{each.suffix}`", f"`{each.record}`", each.key, str(each.partitions), _kept(each)) for each in TOPICS)
    return table(("topic", "record", "key", "partitions", "kept"), rows)


def records() -> list[str]:
    """Return the newest version of each record, with its id and its purpose."""
    purposes = {record.__name__: _first_sentence(record.__doc__) for record in SHOWN_TYPES.values()}
    newest: dict[str, tuple[int, str]] = {}
    for number, stem in SCHEMAS.items():
        newest[stem.rsplit(".", 1)[0]] = (number, stem)
    rows = []
    for number, stem in newest.values():
        schema = json.loads((AVSC_DIRECTORY / f"{stem}.avsc").read_text(encoding="utf-8"))
        purpose = purposes[schema["name"]].replace("``", "`")
        rows.append((str(number), f"[`{stem}`](../schemas/avsc/{stem}.avsc)", purpose))
    return table(("id", "schema, with all fields", "what it is"), rows)


def layout(module: ModuleType) -> list[str]:
    """Return a module's description of a packed format: its table, and the paragraphs around that."""
    text = re.sub(r":class:`[\w.]*?(\w+)`", r"`\1`", module.__doc__ or "").replace("``", "`")
    before, *lines, after = re.split(r"^=+[= ]*$", text.partition("\n\n")[2], flags=re.MULTILINE)
    rows = re.findall(r"^(`\w+`) +([CR] \w+|\w+) +(.+)$", "".join(lines), re.MULTILINE)
    return [before.strip(), "", *table(("column", "type", "what it is"), rows), "", after.strip()]


def reference() -> str:
    """Return docs/reference.md."""
    parts = [
        ["# Reference", "", MADE],
        ["[Settings](settings.md) and [the wire format](wire.md) have their own pages."],
        [
            "## Commands",
            "",
            "`--help` of each says more, with options and examples; `regraft --install-completion` adds completion.",
            "",
            *commands(),
        ],
        [
            "### Example outputs",
            "",
            "Of a run with eight emulated brokers; `...` stands for what is left out.",
            "",
            "```text",
            EXAMPLES.read_text(encoding="utf-8").rstrip(),
            "```",
        ],
        ["## Exit codes", "", *table(("code", "meaning"), ((f"`{code}`", text) for code, text in MEANINGS.items()))],
        [
            "## Kafka topics",
            "",
            "Names begin with the namespace, `regraft.` by default. Who writes and reads them:",
            "[rights](security.md#rights-in-kafka).",
            "",
            *topics(),
        ],
        [
            "## Metrics",
            "",
            "Each stage serves them at `/metrics`; `regraft list metrics` prints all, with types, labels and meaning.",
            "`infra/prometheus_alerts.yml` has rules for the most important, `infra/grafana_dashboard.json` panels.",
        ],
        ["## Events", "", *table(("kind", "what happened"), ((f"`{kind}`", text) for kind, text in EVENTS.items()))],
        [
            "## Verdicts",
            "",
            "What the judge says of a proposal:",
            "",
            *table(("verdict", "why"), ((f"`{verdict}`", text) for verdict, text in VERDICTS.items())),
        ],
    ]
    return _page(parts)


def wire() -> str:
    """Return docs/wire.md."""
    before, after = WIRE_PICTURE.read_text(encoding="utf-8").split("<!-- records -->")
    parts = [
        [before.replace("<!-- made -->", MADE).strip()],
        records(),
        ["## Packed telemetry", "", *layout(packed_cells)],
        [after.strip()],
    ]
    return _page(parts)


def settings() -> str:
    """Return docs/settings.md: the common settings first, then all others; those of one name and text in one row."""
    models = {**section_models(), **named_models()}
    rows = {name: row for path, model in models.items() for name, row in _rows(path, model())}
    common = [_row([name, *_alike(name, rows)], rows) for name in COMMON]
    shown = {each for name in COMMON for each in (name, *_alike(name, rows))}
    parts = [
        ["# Settings", "", MADE],
        [
            "A flag (`--set section.name=value`) wins over the environment (`REGRAFT_SECTION__NAME`), that over a TOML",
            'file (`--settings FILE` or `REGRAFT_SETTINGS`), that over the default. `"none"` means: no value.',
            "`regraft init` writes a short file, `regraft settings --example` one with all settings, also those of",
            "planners, demo and emulator, which are not listed here.",
        ],
        ["## Common", "", *table(SETTINGS_HEAD, common)],
        [
            "## Variables of the environment",
            "",
            *table(("variable", "meaning"), ((f"`{name}`", text) for name, text in VARIABLES.items())),
        ],
    ]
    for section in SECTIONS:
        own = []
        for name in rows:
            if name.split(".")[0] == section and name not in shown:
                own.append(_row([name, *_alike(name, rows)], rows))
                shown |= {name, *_alike(name, rows)}
        if own:
            parts.append([f"## {section}", "", *table(SETTINGS_HEAD, own)])
    if left := {name for name in rows.keys() - shown if name.split(".")[0] not in FOR_RESEARCHERS}:
        raise ValueError(f"SECTIONS lacks the tables of {', '.join(sorted(left))}")
    return _page(parts)


def _rows(path: str, model: SettingsModel) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the full name of each setting below a table, with its default and its text."""
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, SettingsModel):
            yield from _rows(f"{path}.{name}", value)
        else:
            yield f"{path}.{name}", (toml_text(value), field.description or "")


def _alike(name: str, rows: Mapping[str, tuple[str, str]]) -> list[str]:
    """Return the other settings with the same last name, default and text."""
    last = name.rsplit(".", 1)[1]
    return [each for each in rows if each != name and each.endswith(f".{last}") and rows[each] == rows[name]]


def _row(names: Sequence[str], rows: Mapping[str, tuple[str, str]]) -> tuple[str, str, str]:
    default, text = rows[names[0]]
    return ", ".join(f"`{name}`" for name in names), f"`{default}`", text


def _page(parts: Iterable[Iterable[str]]) -> str:
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _first_sentence(text: str | None) -> str:
    paragraph = (text or "").strip().split("\n\n")[0]
    return re.split(r"(?<=\.)\s+(?=[A-Z])", re.sub(r"\s+", " ", paragraph))[0]


def _first_clause(text: str | None) -> str:
    """Return the first sentence up to a colon or semicolon."""
    return f"{re.split(r'[:;] ', _first_sentence(text))[0].rstrip('.')}."


def _items(text: str | None) -> list[tuple[str, str]]:
    """Return what a command does for each value of its argument: the list in its help, without options in brackets."""
    items = re.findall(r"^- `(\w+)`[^:]*: (.+?)(?=^-|\n\n)", text or "", re.MULTILINE | re.DOTALL)
    return [(name, _first_sentence(f"{about[0].upper()}{about[1:]}")) for name, about in items]


def _kept(topic: Topic) -> str:
    if topic.retention_ms is None:
        return "newest of a key"
    days, hours = divmod(topic.retention_ms // HOUR_MS, 24)
    return f"{days} days" if days > 1 and not hours else f"{24 * days + hours} h"


PAGES = {
    ROOT / "docs" / "reference.md": reference,
    ROOT / "docs" / "settings.md": settings,
    ROOT / "docs" / "wire.md": wire,
}


def main() -> int:
    """Write all pages."""
    for page, write in PAGES.items():
        page.write_text(write(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
