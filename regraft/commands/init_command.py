"""The command `regraft init`: write a first settings file, from options or by asking.

The settings themselves belong to :mod:`settings.run_settings`.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from regraft.infra.process.exit_codes import EXIT_CALL


@dataclass(frozen=True)
class Question:
    """One setting that cannot be guessed: its table and name, the question, and the default."""

    table: str
    name: str
    text: str
    default: str


KAFKA = Question("kafka", "bootstrap", "Kafka servers (host:port, comma-separated)", "127.0.0.1:9092")
NAMESPACE = Question("kafka", "namespace", "Prefix of all topic names", "regraft")
AUTHORITY = Question(
    "kafka.security", "ca_file", "File with the CA certificates for TLS to Kafka, none for plain text", "none"
)
MORE = """\
Add to it what you use (docs/settings.md):
  the dashboard                        redis.url, of Valkey or Redis
  Kafka with logins                    kafka.security.mechanism, username, password_file
  alerts by mail, chat or webhook      alerts.targets, alerts.webhooks (secrets: better in the environment)
  metrics for Prometheus               metrics_port in the table of each stage
"""
DIRECTORY = Question("run", "directory", "Directory for a run's files", "out/run")


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write; it must not exist yet.")] = Path(
        "regraft.toml"
    ),
    bootstrap: Annotated[str | None, typer.Option(metavar="HOST:PORT", help=f"{KAFKA.text}.")] = None,
    namespace: Annotated[str | None, typer.Option(metavar="NAME", help=f"{NAMESPACE.text}.")] = None,
    ca_file: Annotated[str | None, typer.Option(metavar="FILE", help=f"{AUTHORITY.text}.")] = None,
    directory: Annotated[str | None, typer.Option(metavar="DIRECTORY", help=f"{DIRECTORY.text}.")] = None,
    act: Annotated[
        bool | None, typer.Option("--act/--review", help="Execute plans automatically, or require approval.")
    ] = None,
) -> None:
    """Create a settings file for your site; at a terminal, ask for anything not given as an option.

    Without a terminal, defaults apply. All other settings keep their defaults (`regraft settings --example`).

    Examples: `regraft init`; `regraft init site.toml --bootstrap kafka:9092 --review`.
    """
    from regraft.schemas.status_file import replace_file
    from regraft.settings.run_settings import SettingsError, load_settings

    if file.exists():
        typer.echo(f"{file} already exists: name a different file, or remove it.", err=True)
        raise typer.Exit(EXIT_CALL)
    given = {KAFKA: bootstrap, NAMESPACE: namespace, AUTHORITY: ca_file, DIRECTORY: directory}
    answers = {question: _answer(question, value) for question, value in given.items()}
    acts = act if act is not None else sys.stdin.isatty() and typer.confirm("Execute plans without asking?")
    replace_file(file, _toml(answers, acts=acts))
    try:
        load_settings(file=file)
    except SettingsError:
        file.unlink()
        raise
    named = shlex.quote(str(file.absolute()))
    typer.echo(f"Wrote {file}. Every command reads it after:\n\n    export REGRAFT_SETTINGS={named}\n")
    typer.echo(MORE)
    typer.echo("Next: regraft doctor")


def _answer(question: Question, given: str | None) -> str:
    if given is not None:
        return given
    if not sys.stdin.isatty():
        return question.default
    return str(typer.prompt(question.text, default=question.default))


def _toml(answers: dict[Question, str], *, acts: bool) -> str:
    """Return the text of the settings file."""
    from regraft.settings.settings_example import toml_text

    tables: dict[str, list[str]] = {}
    for question, value in answers.items():
        tables.setdefault(question.table, []).append(f"# {question.text}\n{question.name} = {toml_text(value)}")
    if answers[AUTHORITY] != AUTHORITY.default:
        tables[AUTHORITY.table].append("tls = true")
    asks = "# Whether plans wait for approval\n"
    tables["controller"] = [f"{asks}dry_run = {toml_text(not acts)}"]
    return "\n\n".join(f"[{name}]\n" + "\n".join(lines) for name, lines in tables.items()) + "\n"
