"""Read a file of rules: TOML with one ``[[rule]]`` table per rule.

In: the text. Out: a RuleBook, or one RulesError that lists every error with the rule's name and line. What the
parameters mean belongs to :mod:`alerts.rule_kinds`.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import EnumMeta
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from regraft.alerts.rule_kinds import KIND_OF, BlastRule, Rule
from regraft.infra.process.stack_error import CallError
from regraft.schemas.parse_text import parse_toml
from regraft.schemas.texts import name_near

DEFAULT_RULES = Path(__file__).parent / "default_rules.toml"
RULES_MAX = 200
RULE_HEAD = re.compile(r"^\s*\[\[\s*rule\s*\]\]")
TYPE_WORDS: Mapping[object, str] = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


class RulesError(CallError):
    """A file of rules cannot be used; ``errors`` lists everything that is wrong with it."""

    def __init__(self, source: str, errors: Sequence[str]) -> None:
        super().__init__(f"The rules in {source} cannot be used:\n- " + "\n- ".join(errors))
        self.errors = tuple(errors)


@dataclass(frozen=True)
class RuleBook:
    """The rules in file order. Names are unique, and at most one rule is about the blast radius."""

    rules: tuple[Rule, ...]

    @property
    def by_name(self) -> Mapping[str, Rule]:
        """Return the rules by name."""
        return {rule.name: rule for rule in self.rules}

    @property
    def windows_memory(self) -> int:
        """Return how many windows back any rule looks."""
        return max((rule.windows_memory for rule in self.rules), default=0)

    @property
    def span_s_memory(self) -> float:
        """Return how far back any rule counts events, in seconds."""
        return max((rule.span_s_memory for rule in self.rules), default=0.0)


def load_rules(path: Path | None = None) -> RuleBook:
    """Return the rules of a file, or the package's default rules. Raises RulesError with all errors at once."""
    file = path or DEFAULT_RULES
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise RulesError(
            str(file), [f"it cannot be read ({reason}): `regraft alerts rules` prints an example"]
        ) from error
    return parse_rules(text, str(file))


def parse_rules(text: str, source: str = "the text") -> RuleBook:
    """Return the rules of a TOML text; ``source`` names it in messages. Raises RulesError with all errors at once."""
    try:
        document = parse_toml(text)
    except ValueError as error:
        raise RulesError(source, [f"it is not TOML: {error}"]) from error
    errors = [f"{name!r} is unknown: a rules file holds only [[rule]] tables" for name in document if name != "rule"]
    tables = document.get("rule", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise RulesError(source, [*errors, "rule is not a list of tables: start each rule with [[rule]]"])
    if not tables:
        errors.append("there are no rules: start each one with [[rule]]")
    if len(tables) > RULES_MAX:
        errors.append(f"there are {len(tables)} rules, but at most {RULES_MAX} are read")
    lines = _Lines(text)
    rules = []
    for number, table in enumerate(tables[:RULES_MAX]):
        rule, rule_errors = _read_rule(table)
        errors += [f"{_place(number, table, key, lines)}: {reason}" for key, reason in rule_errors]
        if rule is not None:
            rules.append(rule)
    errors += _errors_between(rules)
    if errors:
        raise RulesError(source, errors)
    return RuleBook(tuple(rules))


def _read_rule(table: Mapping[str, Any]) -> tuple[Rule | None, list[tuple[str, str]]]:
    """Return the rule of a table, or None, and its errors as (key, sentence)."""
    on = table.get("on")
    if on is None:
        return None, [("", f"on is missing: use one of {', '.join(KIND_OF)}")]
    kind = KIND_OF.get(on) if isinstance(on, str) else None
    if kind is None:
        hint = name_near(str(on), KIND_OF, f"use one of {', '.join(KIND_OF)}")
        return None, [("on", f"on is {on!r}, which no rule can watch: {hint}")]
    hints = get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    errors: list[tuple[str, str]] = []
    values: dict[str, Any] = {}
    for key, given in table.items():
        if key not in fields:
            hint = name_near(key, fields, f"use one of {', '.join(fields)}")
            errors.append((key, f"{key} is not a parameter of a rule on {on}: {hint}"))
            continue
        value, reason = _typed(given, hints[key])
        if reason:
            errors.append((key, f"{key} is {given!r}: {reason}"))
        else:
            values[key] = value
    missing = [
        name
        for name, field in fields.items()
        if name not in table and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    errors += [("", f"{name} is missing: a rule on {on} needs it") for name in missing]
    if errors:
        return None, errors
    rule = kind(**values)
    return rule, [(reason.split(" ", 1)[0], reason) for reason in rule.errors()]


def _typed(given: object, wanted: Any) -> tuple[Any, str]:
    """Return the value converted to the wanted type, and what is wrong with it, "" if nothing is."""
    if get_origin(wanted) is Literal:
        choices = get_args(wanted)
        return (given, "") if given in choices else (None, f"must be one of {', '.join(choices)}")
    if isinstance(wanted, EnumMeta):
        choices = tuple(str(one.value) for one in wanted)  # type: ignore[var-annotated]
        return (wanted(given), "") if given in choices else (None, f"must be one of {', '.join(choices)}")
    if wanted is float and isinstance(given, int) and not isinstance(given, bool):
        return float(given), ""
    if type(given) is wanted:
        return given, ""
    return None, f"write {TYPE_WORDS[wanted]}"


def _errors_between(rules: Sequence[Rule]) -> list[str]:
    names = Counter(rule.name for rule in rules)
    errors = [
        f"the name {name!r} is used by {count} rules: give each its own" for name, count in names.items() if count > 1
    ]
    blasts = [rule.name for rule in rules if isinstance(rule, BlastRule)]
    if len(blasts) > 1:
        errors.append(f"{', '.join(blasts)} all watch the blast radius: only one rule may")
    return errors


def _place(number: int, table: Mapping[str, Any], key: str, lines: _Lines) -> str:
    name = table.get("name")
    label = f"{name!r}" if isinstance(name, str) and name else "without a name"
    return f"rule {number + 1} {label}, line {lines.of(number, key)}"


class _Lines:
    """The lines of the rules and their keys, as far as they can be found in the text."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self._heads = [place for place, line in enumerate(self._lines) if RULE_HEAD.match(line)]

    def of(self, number: int, key: str) -> int:
        """Return the line of a rule's key, else that of its table's head, else 1."""
        if number >= len(self._heads):
            return 1
        head = self._heads[number]
        end = self._heads[number + 1] if number + 1 < len(self._heads) else len(self._lines)
        for place in range(head + 1, end):
            if key and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", self._lines[place]):
                return place + 1
        return head + 1
