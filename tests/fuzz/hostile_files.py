"""Spoiled files: inventories, rules for alerts and settings, each read or refused with one list of sentences.

In: a seed and a count. Out: how many were used and how many refused. Any other error than the reader's own is an error.
"""

from __future__ import annotations

import copy
import json
import math
import random
import string
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regraft.alerts.alert_engine import AlertEngine
from regraft.alerts.read_rules import DEFAULT_RULES, RulesError, parse_rules
from regraft.overlay.inventory.inventory import InventoryError
from regraft.overlay.read_inventory import parse_inventory
from regraft.settings.run_settings import SettingsError, load_settings, sections
from regraft.settings.settings_example import example_text
from tests.controller.test_control_loop import INVENTORY
from tests.overlay.small_overlays import inventory_of, line_of
from tests.producers.recorded_messages import START_MS

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, -(2**63), 10**400, 0.5, -0.0, math.nan, math.inf, -math.inf, 1e308,
    "", "b01", "b\n01", "x" * 5_000, "\u202eb01", [], [None], ["b00", "b01"], [[]], {}, {"b00": 5}, [[0, 1], [1, 0]],
)  # fmt: skip
TOML_VALUES = ("0", "1", "-1", "9223372036854775807", "1e400", "nan", "inf", '""', '"none"', '"x"', '"-5"', "true",
               "[]", "[1]", '["a", 5]', "{}", "{ a = 1 }", "1979-05-27", '"""\n"""', "07", "'", "[[", '"\\u0000"',
               '"127.0.0.1:9"', '"spark://x:1"', '"mqtt://h:1"', '"../../etc"', "0.5", "9" * 20)  # fmt: skip


def feed_inventories(rng: random.Random, count: int) -> Counter[str]:
    """Read inventories with fields of any value; each is used or refused with a sentence that names the source."""
    found: Counter[str] = Counter()
    texts = [inventory_of(line_of(4), {}).to_json(), INVENTORY.to_json()]
    for _ in range(count):
        text = _spoiled_json(rng, rng.choice(texts))
        try:
            inventory = parse_inventory(text, "hostile.json")
        except InventoryError as error:
            found["refused"] += _is_one_sentence(str(error))
        else:
            assert parse_inventory(inventory.to_json(), "again").brokers == inventory.brokers
            found["used"] += 1
    return found


def feed_rules(rng: random.Random, count: int) -> Counter[str]:
    """Read rules for alerts with parameters of any value; those that are accepted run."""
    found: Counter[str] = Counter()
    text = DEFAULT_RULES.read_text(encoding="utf-8")
    for _ in range(count):
        try:
            rules = parse_rules(_spoiled_toml(rng, text))
        except RulesError as error:
            found["refused"] += bool(error.errors)
        else:
            AlertEngine(rules, START_MS).tick(START_MS + rng.choice((0, 10**9)))
            found["used"] += 1
    return found


def feed_settings(rng: random.Random, count: int, folder: Path) -> Counter[str]:
    """Read settings files with values of any type; each gives settings or one list of errors, all at once."""
    found: Counter[str] = Counter()
    file, text = folder / "hostile.toml", example_text()
    names = [*sections(), "planners", "nothing"]
    for _ in range(count):
        spoiled = _one_table(rng, names, text) if rng.random() < 0.7 else _spoiled_toml(rng, text)
        file.write_text(spoiled, encoding="utf-8", errors="surrogatepass")
        try:
            load_settings({}, file)
        except SettingsError as error:
            found["refused"] += bool(str(error))
        else:
            found["used"] += 1
    return found


def _is_one_sentence(text: str) -> bool:
    assert text.startswith("hostile.json is not an inventory: ")
    assert len(text) < 1_000
    return True


def _spoiled_json(rng: random.Random, text: str) -> str:
    if rng.random() < 0.1:
        place = rng.randrange(len(text))
        return text[:place] + rng.choice(("", "[" * 5_000, "\x00", '"', "}", "1e999", "\ud800")) + text[place + 1 :]
    document = json.loads(text)
    for _ in range(rng.choice((1, 1, 2, 4))):
        _replace_one(rng, document)
    return json.dumps(document)


def _replace_one(rng: random.Random, document: dict[str, Any]) -> None:
    """Replace a value somewhere in the document, remove it, or add one."""
    holder: Any = document
    while True:
        places: list[Any] = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not places:
            return
        place = rng.choice(places)
        inner = holder[place]
        if not (isinstance(inner, dict | list) and inner and rng.random() < 0.7):
            break
        holder = inner
    match rng.randrange(4):
        case 0 if isinstance(holder, dict):
            del holder[place]
        case 0:
            holder.append(copy.deepcopy(rng.choice(VALUES)))
        case _:
            holder[place] = copy.deepcopy(rng.choice(VALUES))
    if rng.random() < 0.1:
        names = ("load_max_per_s", "positions", "agents", "prices", "clients_stay", "ring_ids", "regions", "clusters")
        document[rng.choice(names)] = copy.deepcopy(rng.choice(VALUES))


def _spoiled_toml(rng: random.Random, text: str) -> str:
    """Change the values of some lines, or a character anywhere."""
    lines = text.splitlines()
    valued = [place for place, line in enumerate(lines) if "=" in line and not line.startswith("#")]
    for _ in range(rng.choice((1, 1, 3, 10))):
        place = rng.choice(valued)
        name = lines[place].partition("=")[0]
        lines[place] = rng.choice((f"{name}= {rng.choice(TOML_VALUES)}", f"x{name}= 1", lines[place] * 2, ""))
    found = "\n".join(lines)
    if rng.random() < 0.1:
        place = rng.randrange(len(found))
        found = found[:place] + rng.choice((*string.punctuation, "\x00", "\n[[")) + found[place + 1 :]
    return found


def _one_table(rng: random.Random, names: list[str], example: str) -> str:
    """Return one table with some of its settings, of any value: most files of users are short."""
    table = rng.choice(names)
    keys = list(_keys_of(example, table)) or ["a"]
    chosen = rng.sample(keys, min(len(keys), rng.choice((1, 1, 2, 4))))
    return f"[{table}]\n" + "\n".join(f"{key} = {rng.choice(TOML_VALUES)}" for key in chosen) + "\n"


def _keys_of(example: str, table: str) -> Iterator[str]:
    present = ""
    for line in example.splitlines():
        if line.startswith("["):
            present = line.strip("[]")
        elif present == table and "=" in line and not line.startswith("#"):
            yield line.partition("=")[0].strip()
