"""Run every command of the command line, each in a copy of this process; print the results as JSON.

``python -m tests.regraft.run_every_command DIRECTORY LOGS [MORE]``: in DIRECTORY, output to LOGS, and with MORE as the
value of every option that names a file or directory to write.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from regraft import cli
from regraft.settings.run_settings import load_settings

HERE = Path(__file__).parent
ENOUGH_S = 120.0
RECORDING = HERE / "recordings" / "small.avro"
RULES = HERE.parents[1] / "regraft" / "alerts" / "default_rules.toml"
# What an operator must give, by the name of the argument or option.
GIVEN = {
    "file": str(RECORDING),
    "rules_file": str(RULES),
    "broker": "b01",
    "brokers": "b01",
    "name": "plan-1",
    "reason": "trial",
    "by": "ana",
    "out": "out/written",
    "connector": "nats://127.0.0.1:1",
    "table": "nodes.csv",
}
MORE = {
    ("members", "dead"): ["--yes"],
    ("members", "remove"): ["--yes"],
    ("backtest",): ["--planner", "swap_links_ci"],
    ("keys", "create"): ["--order", "pause"],
    ("init",): ["--bootstrap", "127.0.0.1:1"],
    ("inventory", "make"): ["--brokers", "b01,b02"],
}
# The calls of commands that do several things.
VARIANTS = {
    ("stage",): [
        *([name] for name in ("emulate", "stream", "control", "alerts", "dashboard")),
        ["node", "--broker", "b01", "--connector", "nats://127.0.0.1:1"],
    ],
    ("list",): [["planners"], ["metrics"]],
    ("dashboard", "token"): [["--by", "ana"], ["--revoke", "0123456789abcdef"]],
    ("inventory", "check"): [[], [str(RECORDING)], ["--schema"]],
    ("plans", "list"): [[], ["plan-1"]],
    ("members", "maintain"): [["b01", "--reason", "trial"], ["b01", "--end"]],
    ("pause",): [["--reason", "trial"], ["--end"]],
}
OUTPUTS = {"--out", "--record", "--directory"}  # `--json` as well, where it takes a file.
LOADED = ("regraft.infra.kafka.kafka_clients", "regraft.stages.run_loop")


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each command with the words that name it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def calls(path: tuple[str, ...], command: Any, output: str) -> list[list[str]]:
    """Return the words of all calls of a command."""
    if path in VARIANTS:
        return [[*path, *variant] for variant in VARIANTS[path]]
    return [arguments(path, command, output)]


def arguments(path: tuple[str, ...], command: Any, output: str) -> list[str]:
    """Return the words of a call that is complete, and writes to ``output`` whatever can be written elsewhere."""
    words = [*path, *MORE.get(path, [])]
    for each in command.params:
        is_file = each.opts[0] in OUTPUTS or (each.opts[0] == "--json" and not each.is_flag)
        if each.param_type_name == "argument":
            if each.required or (output and each.name in ("rules_file", "file")):
                words.append(output if output and path == ("init",) else GIVEN[each.name])
        elif output and is_file:
            words += [each.opts[0], output]
        elif each.required:
            words += [each.opts[0], GIVEN[each.name]]
    return words


def run(words: list[str], directory: Path, log: Path) -> dict[str, Any]:
    """Run one command in a copy of this process; return its words, exit code and output."""
    pid = os.fork()
    if pid == 0:
        _be_the_command(words, directory, log)
    deadline_s = time.monotonic() + ENOUGH_S
    while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline_s:
            os.kill(pid, 9)
        time.sleep(0.02)
    return {"words": words, "code": os.waitstatus_to_exitcode(ended[1]), "text": log.read_text(errors="replace")}


def _be_the_command(words: list[str], directory: Path, log: Path) -> None:
    opened = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number in (1, 2):
        os.dup2(opened, number)
    os.chdir(directory)
    sys.argv = ["regraft", *words]
    code: object = 0
    try:
        cli.main()
    except SystemExit as leaving:
        code = leaving.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def main() -> None:
    """Run all of them."""
    directory, log = Path(sys.argv[1]), Path(sys.argv[2])
    output = sys.argv[3] if len(sys.argv) > 3 else ""
    for name in LOADED:  # Once, rather than in each copy.
        importlib.import_module(name)
    load_settings()  # Makes the models of the settings.
    found = [
        run(words, directory, log)
        for path, command in commands(typer.main.get_command(cli.app))
        for words in calls(path, command, output)
    ]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
