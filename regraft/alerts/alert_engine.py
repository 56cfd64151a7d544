"""Apply rules to records: what is raised and cleared, and when. Pure: records and times in, alerts out.

In: decoded records, each once and in topic order, with the time. Out: alerts whose status changed. An engine that gets
the alerts of an earlier one, then the last windows and events of its rules' memory again as *known*, and then the rest,
raises and clears the same as one that was never interrupted. Notification belongs to :mod:`alerts.notify_targets`.

Time is event time: that of a window is its end, that of an event when it happened. Only what no record shows (a window
that does not arrive, a phase that does not end) is found by ``tick``.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from regraft.alerts.findings import Finding
from regraft.alerts.gather_windows import ROWS_WAIT_MS, SeenWindow, WindowGatherer
from regraft.alerts.read_rules import RuleBook
from regraft.alerts.rule_kinds import (
    BlastRule,
    CountRule,
    FlappingRule,
    FleetRule,
    GrowthRule,
    LevelRule,
    MissingRule,
    Rule,
    SilentRule,
    StalledRule,
)
from regraft.alerts.watch_blast import BlastWatcher, is_single
from regraft.alerts.watch_events import CountWatcher
from regraft.alerts.watch_fleet import FleetWatcher
from regraft.alerts.watch_plans import FlappingWatcher, StalledWatcher
from regraft.alerts.watch_windows import ALL_WINDOWS, GrowthWatcher, LevelWatcher, SilentWatcher, WindowWatcher
from regraft.schemas.alert import Alert, AlertStatus
from regraft.schemas.bounds import NAME_LENGTH_MAX
from regraft.schemas.order import Order
from regraft.schemas.order_book import OrderBook
from regraft.schemas.state import StateRow, WindowClosed
from regraft.schemas.texts import one_line

FIRST_WINDOW_FACTOR = 10  # How much longer than later windows the first one may take before it counts as missing.
CLEARED_KEPT_MAX = 1_000  # Cleared alerts; the oldest are removed, here and in the topic.
ENTITY_LENGTH_MAX = 2 * NAME_LENGTH_MAX + 1  # Of a subject, as :mod:`schemas.bounds` has it.
RAISED_MAX = 1_000  # Raised alerts of one rule: subjects are named by records, which may invent any number.
RAISED_BY_ONE_MAX = 100  # Of those, about what one broker reports, such as its links: others keep room for theirs.
BROKERS_KEPT_MAX = 500  # Of one alert, so that Kafka accepts its record.
RecordWatcher = CountWatcher | StalledWatcher | FlappingWatcher | FleetWatcher
RULE_REMOVED = "The rule {rule} is no longer in use."


class AlertBook:
    """All alerts by rule and subject, with an index of raised ones by rule."""

    def __init__(self, alerts: Iterable[Alert] = ()) -> None:
        self.alerts: dict[str, Alert] = {}
        self._raised: dict[str, set[str]] = {}
        self._raised_by: Counter[tuple[str, str]] = Counter()  # By the rule, and the broker that reports the subject.
        for alert in alerts:
            self.put(alert)

    def put(self, alert: Alert) -> None:
        """Add an alert, or replace the one with its key."""
        for one, change in ((self.alerts.get(alert.key), -1), (alert, 1)):
            if one is not None and one.is_raised:
                self._count_raised((one.rule, _reporter(one)), change)
        self.alerts[alert.key] = alert
        subjects = self._raised.setdefault(alert.rule, set())
        (subjects.add if alert.is_raised else subjects.discard)(alert.subject)

    def _count_raised(self, of: tuple[str, str], change: int) -> None:
        self._raised_by[of] += change
        if not self._raised_by[of]:
            del self._raised_by[of]

    def drop(self, key: str) -> None:
        """Remove an alert."""
        del self.alerts[key]

    def subjects(self, rule: str) -> frozenset[str]:
        """Return the subjects whose alert is raised at present."""
        return frozenset(self._raised.get(rule, ()))

    def has_room(self, finding: Finding) -> bool:
        """Return True if one more alert of the rule may be raised, and one more about what its broker reports."""
        if finding.brokers and self._raised_by[finding.rule, finding.brokers[0]] >= RAISED_BY_ONE_MAX:
            return False
        return len(self.subjects(finding.rule)) < RAISED_MAX

    def changed_ms(self, rule: str, subject: str) -> int:
        """Return when the status of a subject's alert last changed, 0 if there is no alert."""
        alert = self.alerts.get(f"{rule}/{subject}")
        return 0 if alert is None else alert.changed_ms

    @property
    def raised(self) -> list[Alert]:
        """Return the raised alerts."""
        return [alert for alert in self.alerts.values() if alert.is_raised]


class AlertEngine:
    """All rules of a book over one stream of records.

    ``started_ms`` is the time from which missing windows count. ``book`` holds the alerts; the notifier writes changed
    ones back. ``calm_windows`` is the count of the earlier engine, see the property. ``not_raised`` counts by rule how
    often an alert beyond RAISED_MAX was due, or beyond the share of the broker that reports its subject.
    """

    def __init__(
        self,
        rules: RuleBook,
        started_ms: int,
        known: Iterable[Alert] = (),
        calm_windows: int = 0,
        rows_wait_ms: float = ROWS_WAIT_MS,
    ) -> None:
        self.rules = rules
        self.book = AlertBook(known)
        self.orders = OrderBook()
        self.gatherer = WindowGatherer(rows_wait_ms)
        self.windows_judged = 0
        self.not_raised: Counter[str] = Counter()
        self.newest_end_ms: int | None = None
        self._by_name: Mapping[str, Rule] = rules.by_name
        self._windows = [_window_watcher(rule) for rule in rules.rules if isinstance(rule, _WINDOW_RULES)]
        self._records: list[RecordWatcher] = [
            _record_watcher(rule) for rule in rules.rules if isinstance(rule, _RECORD_RULES)
        ]
        blasts = [BlastWatcher(rule, calm_windows) for rule in rules.rules if isinstance(rule, BlastRule)]
        self._blast = blasts[0] if blasts else None
        self._missing = [rule for rule in rules.rules if isinstance(rule, MissingRule)]
        memory = max([rule.clear_for_windows for rule in self._missing], default=1)
        self._written_ms: deque[int] = deque(maxlen=memory)
        self._started_ms = started_ms
        self._brokers: frozenset[str] = frozenset()

    @property
    def calm_windows(self) -> int:
        """Return for how many windows the blast radius has been small; stored, because windows do not show it."""
        return self._blast.calm_windows if self._blast is not None else 0

    @property
    def is_blast(self) -> bool:
        """Return True if the alert about the blast radius is raised."""
        return self._blast is not None and bool(self.book.subjects(self._blast.rule.name))

    def drop_old_rules(self, now_ms: int) -> list[Alert]:
        """Clear the alerts whose rule no longer exists; call it once, at the start."""
        gone = [alert for alert in self.book.raised if alert.rule not in self._by_name]
        return [self._cleared_for_good(alert, now_ms) for alert in gone]

    def take(
        self, record: msgspec.Struct, time_ms: int, now_ms: int, *, is_known: bool = False
    ) -> list[Alert]:  # fmt: skip
        """Process a record written at ``time_ms``; return the alerts that it changes.

        A known record was judged by an earlier engine, and only updates what rules remember.
        """
        if isinstance(record, StateRow):
            self.gatherer.take_row(record)
            return self.judge_windows(now_ms)
        if isinstance(record, WindowClosed):
            self.gatherer.take_marker(record, time_ms, now_ms, is_known=is_known)
            return self.judge_windows(now_ms)
        if isinstance(record, Order):
            self.orders.take(record)
            return []
        changed: list[Alert] = []
        for watcher in self._records:
            findings = watcher.take(record, now_ms, self.book)
            changed += [] if is_known else self._apply(findings)
        return changed

    def tick(self, now_ms: int) -> list[Alert]:
        """Return the alerts that change with time alone; call it only after all known records were processed."""
        changed = self.judge_windows(now_ms)
        for watcher in self._records:
            changed += self._apply(watcher.tick(now_ms, self.book))
        for rule in self._missing:
            changed += self._apply(self._judge_missing(rule, now_ms))
        return changed

    def judge_windows(self, now_ms: int) -> list[Alert]:
        """Judge the windows that are complete by now; return the alerts that change."""
        return [alert for window in self.gatherer.windows(now_ms) for alert in self._judge(window, now_ms)]

    def forget(self) -> list[str]:
        """Remove the oldest cleared alerts beyond the limit; return their keys."""
        over = [alert for alert in self.book.alerts.values() if not alert.is_raised and not _is_end_due(alert)]
        count = max(len(over) - CLEARED_KEPT_MAX, 0)
        old = [alert.key for alert in sorted(over, key=lambda alert: alert.changed_ms)[:count]] if count else []
        for key in old:
            self.book.drop(key)
        return old

    def _judge(self, window: SeenWindow, now_ms: int) -> list[Alert]:
        self.newest_end_ms = window.end_ms
        self._written_ms.append(min(window.written_ms, now_ms))
        changed: list[Alert] = []
        for watcher in self._windows:
            findings = watcher.watch(window, self.book)
            changed += [] if window.is_known else self._apply(findings)
        self._brokers |= window.broker_names
        if self._blast is not None and not window.is_known:
            changed += self._watch_blast(self._blast, window)
        self._brokers = window.broker_names
        self.windows_judged += 1
        return changed

    def _watch_blast(self, blast: BlastWatcher, window: SeenWindow) -> list[Alert]:
        silent: set[str] = set()
        affected = set(self.orders.maintained(window.end_ms))
        for rule in self.rules.rules:
            if not is_single(rule.on):
                continue
            subjects = self.book.subjects(rule.name)
            brokers = {self.book.alerts[f"{rule.name}/{subject}"].brokers[:1] for subject in subjects}
            alerts = {broker for pair in brokers for broker in pair}
            affected |= alerts
            silent |= alerts if isinstance(rule, SilentRule) else set()
        present = self._brokers | silent
        return self._apply(blast.watch(window.end_ms, affected & present, len(present), is_raised=self.is_blast))

    def _judge_missing(self, rule: MissingRule, now_ms: int) -> list[Finding]:
        last_ms = max([self._started_ms, *self._written_ms])
        silent_s = (now_ms - last_ms) / 1000
        if not self.book.subjects(rule.name):
            factor = 1 if self._written_ms else FIRST_WINDOW_FACTOR
            status, is_due = AlertStatus.RAISED, silent_s >= factor * rule.for_s
        else:
            since_ms = self.book.changed_ms(rule.name, ALL_WINDOWS)
            recent = list(self._written_ms)[-rule.clear_for_windows :]
            status = AlertStatus.CLEARED
            is_due = len(recent) == rule.clear_for_windows and min(recent) > since_ms and silent_s < rule.for_s
        if not is_due:
            return []
        return [Finding(rule.name, ALL_WINDOWS, status, now_ms, max(silent_s, 0.0), rule.limit)]

    def _apply(self, findings: Sequence[Finding]) -> list[Alert]:
        changed = []
        for finding in findings:
            finding = _storable(finding)
            before = self.book.alerts.get(f"{finding.rule}/{finding.subject}")
            is_new = finding.status is AlertStatus.RAISED and not (before and before.is_raised)
            if is_new and not self.book.has_room(finding):
                self.not_raised[finding.rule] += 1
                continue
            alert = _alert_of(finding, self._by_name[finding.rule], before)
            self.book.put(alert)
            changed.append(alert)
        return changed

    def _cleared_for_good(self, alert: Alert, now_ms: int) -> Alert:
        text = RULE_REMOVED.format(rule=alert.rule)
        cleared = msgspec.structs.replace(
            alert, status=AlertStatus.CLEARED, changed_ms=now_ms, text=text, value=0.0, silenced_by=""
        )
        self.book.put(cleared)
        return cleared


def _reporter(alert: Alert) -> str:
    """Return the broker that reports the alert's subject: of a link the first one."""
    return alert.brokers[0] if alert.brokers else ""


def _storable(finding: Finding) -> Finding:
    """Return a finding with no more brokers, and no longer a subject, than a stored alert may have."""
    if len(finding.subject) <= ENTITY_LENGTH_MAX and len(finding.brokers) <= BROKERS_KEPT_MAX:
        return finding
    subject, brokers = finding.subject[:ENTITY_LENGTH_MAX], finding.brokers[:BROKERS_KEPT_MAX]
    return dataclasses.replace(finding, subject=subject, brokers=brokers)


def _alert_of(finding: Finding, rule: Rule, before: Alert | None) -> Alert:
    is_raised = finding.status is AlertStatus.RAISED
    raised_ms = finding.time_ms if is_raised or before is None else before.raised_ms
    text = (rule.text if is_raised else rule.text_cleared).format(
        subject=finding.subject,
        value=finding.value,
        limit=finding.limit,
        detail=one_line(finding.detail),
        duration_s=(finding.time_ms - raised_ms) / 1000,
        **rule.text_values(),
    )
    alert = Alert(
        finding.rule,
        finding.subject,
        rule.severity,
        finding.status,
        raised_ms,
        finding.time_ms,
        text.strip(),
        finding.value,
        finding.brokers or (before.brokers if before else ()),
    )
    if before is None:
        return alert
    return msgspec.structs.replace(
        alert, told=before.told, told_ms=before.told_ms, message=before.message, deliveries=before.deliveries
    )


def _is_end_due(alert: Alert) -> bool:
    return alert.told == AlertStatus.RAISED


def _window_watcher(rule: Rule) -> WindowWatcher:
    if isinstance(rule, GrowthRule):
        return GrowthWatcher(rule)
    if isinstance(rule, SilentRule):
        return SilentWatcher(rule)
    assert isinstance(rule, LevelRule)
    return LevelWatcher(rule)


def _record_watcher(rule: Rule) -> RecordWatcher:
    if isinstance(rule, StalledRule):
        return StalledWatcher(rule)
    if isinstance(rule, FlappingRule):
        return FlappingWatcher(rule)
    if isinstance(rule, FleetRule):
        return FleetWatcher(rule)
    assert isinstance(rule, CountRule)
    return CountWatcher(rule)


_WINDOW_RULES = (LevelRule, GrowthRule, SilentRule)
_RECORD_RULES = (CountRule, StalledRule, FlappingRule, FleetRule)
