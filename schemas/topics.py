"""The one table of Kafka topics: name, record, key, partitions, retention, who writes and who reads.

Nothing here talks to Kafka; ``infra`` creates the topics from this table, and the rights of those who use them.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

DAY_MS = 24 * 3_600_000
LOG_APPEND_TIME = "LogAppendTime"  # Kafka's own clock: what all brokers' clocks are held against.
CREATE_TIME = "CreateTime"  # The sender's, or any value it sets.


class Role(StrEnum):
    """Who uses topics; in Kafka each is a separate principal, or several (one for each operator)."""

    BROKERS = "brokers"
    STREAMING = "streaming"
    CONTROLLER = "controller"
    ALERTS = "alerts"
    DASHBOARD = "dashboard"
    OPERATOR = "operator"
    RECORDER = "recorder"


BROKERS, STREAMING, CONTROLLER = Role.BROKERS, Role.STREAMING, Role.CONTROLLER
DASHBOARD, OPERATOR, RECORDER = Role.DASHBOARD, Role.OPERATOR, Role.RECORDER


@dataclass(frozen=True, slots=True)
class Topic:
    """One Kafka topic.

    ``retention_ms`` is None where the topic is compacted (the newest record of a key is kept forever). ``timestamps``
    is Kafka's ``message.timestamp.type``, empty where it does not matter whose clock gives a record its time.
    ``compaction_lag_ms``: for this long a compacted topic keeps older records of a key, too. ``is_one_log``: records of
    different keys have one order, or the topic is a lock, so it may not have more than its one partition.
    ``is_by_agent``: each agent of brokers has its own topic, which no other one needs.
    """

    suffix: str
    record: str
    key: str
    writers: tuple[Role, ...]
    readers: tuple[Role, ...]
    partitions: int
    retention_ms: int | None
    timestamps: str = ""
    compaction_lag_ms: int = 0
    is_one_log: bool = False
    is_by_agent: bool = False

    @property
    def compacted(self) -> bool:
        """Return True if Kafka keeps the newest record of each key instead of a span of time."""
        return self.retention_ms is None


TELEMETRY = Topic(
    "telemetry",
    "TelemetryBatch",
    "broker",
    (BROKERS,),
    (STREAMING, RECORDER),
    4,
    DAY_MS,
    LOG_APPEND_TIME,
    is_by_agent=True,
)
CLIENTS = Topic("clients", "Client", "client", (BROKERS,), (BROKERS, CONTROLLER, RECORDER), 1, None)
STATE = Topic("state", "StateRow", "window, kind, entity", (STREAMING,), (CONTROLLER, Role.ALERTS, RECORDER), 1, DAY_MS)
WINDOWS = Topic(
    "windows", "WindowClosed", "window", (STREAMING,), (CONTROLLER, Role.ALERTS, RECORDER), 1, DAY_MS, is_one_log=True
)
COMMANDS = Topic(
    "commands", "Command", "broker", (CONTROLLER,), (BROKERS, RECORDER), 1, DAY_MS, is_one_log=True, is_by_agent=True
)
RESULTS = Topic("results", "CommandResult", "broker", (BROKERS,), (CONTROLLER, RECORDER), 1, DAY_MS, is_by_agent=True)
PLANS = Topic(
    "plans",
    "Plan",
    "plan",
    (CONTROLLER,),
    (BROKERS, CONTROLLER, Role.ALERTS, OPERATOR, RECORDER),
    1,
    None,
    is_one_log=True,
)
EVENTS = Topic(
    "events",
    "AdaptationEvent",
    "subject",
    (STREAMING, CONTROLLER, Role.ALERTS, OPERATOR),
    (Role.ALERTS, OPERATOR, RECORDER),
    1,
    7 * DAY_MS,
)
LEADER = Topic("leader", "LeaderTerm", "leader", (CONTROLLER,), (CONTROLLER, RECORDER), 1, None, is_one_log=True)
MEMBERS = Topic(
    "members",
    "Member",
    "broker",
    (CONTROLLER,),
    (BROKERS, STREAMING, CONTROLLER, Role.ALERTS, OPERATOR, RECORDER),
    1,
    None,
    is_one_log=True,
)
SAMPLING = Topic(
    "sampling",
    "SampleRequest",
    "sampling",
    (CONTROLLER,),
    (BROKERS, CONTROLLER, OPERATOR, RECORDER),
    1,
    None,
    is_one_log=True,
)
# Repeated as long as nobody has let the broker in, so nothing of it needs to be kept.
ANNOUNCEMENTS = Topic(
    "announcements",
    "Announcement",
    "broker",
    (BROKERS,),
    (CONTROLLER, OPERATOR, RECORDER),
    1,
    DAY_MS,
    is_by_agent=True,
)
# Kafka's time shows how old an order is, and the lag keeps a forged record from displacing one at once.
ORDERS = Topic(
    "orders",
    "Order",
    "scope, subject",
    (DASHBOARD, OPERATOR),
    (CONTROLLER, Role.ALERTS, RECORDER),
    1,
    None,
    timestamps=LOG_APPEND_TIME,
    compaction_lag_ms=7 * DAY_MS,
    is_one_log=True,
)
AUDIT = Topic("audit", "AuditEntry", "subject", (CONTROLLER,), (OPERATOR, RECORDER), 1, 400 * DAY_MS)
ALERTS = Topic("alerts", "Alert", "rule, subject", (Role.ALERTS,), (Role.ALERTS, OPERATOR, RECORDER), 1, None)
DEAD_LETTERS = Topic(
    "dead-letters",
    "DeadLetter",
    "source topic",
    (BROKERS, STREAMING, CONTROLLER, Role.ALERTS),
    (Role.ALERTS, OPERATOR),
    1,
    7 * DAY_MS,
)

TOPICS: tuple[Topic, ...] = (
    TELEMETRY,
    CLIENTS,
    STATE,
    WINDOWS,
    COMMANDS,
    RESULTS,
    PLANS,
    LEADER,
    MEMBERS,
    SAMPLING,
    ANNOUNCEMENTS,
    EVENTS,
    ORDERS,
    AUDIT,
    ALERTS,
    DEAD_LETTERS,
)

DEFAULT_NAMESPACE = "regraft"
NO_AGENT = ""  # Who speaks for brokers where nobody is named.
AGENT_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")  # It is a part of names of topics; a dot would look like another.


def topic_name(topic: Topic, namespace: str = DEFAULT_NAMESPACE, agent: str = NO_AGENT) -> str:
    """Return the name of a topic inside a namespace: ``regraft.plans``, of an agent ``regraft.commands.west``."""
    name = f"{namespace}.{topic.suffix}"
    return f"{name}.{agent}" if agent and topic.is_by_agent else name


def topic_names(topic: Topic, namespace: str, agents: Iterable[str]) -> tuple[str, ...]:
    """Return the names that a topic has, one for each agent where it is split by agent."""
    return tuple(dict.fromkeys(topic_name(topic, namespace, agent) for agent in agents))


@dataclass(frozen=True, slots=True)
class RoleNames:
    """What a role needs of Kafka besides topics: the consumer groups it names, and the ids of its transactions.

    Names that end in * stand for all that begin so; {namespace} is that of the topics.
    """

    groups: tuple[str, ...] = ()
    transactions: tuple[str, ...] = ()


# Readers that commit nothing also name a group, their client id: Kafka asks for a right to it anyway.
NAMES_OF: dict[Role, RoleNames] = {
    Role.BROKERS: RoleNames(("regraft-emulator",)),
    Role.STREAMING: RoleNames(("regraft-streaming", "spark-kafka-source-*")),
    # The leader of several controllers is found by a group, and shuts out those before it by a transactional id.
    Role.CONTROLLER: RoleNames(("regraft-controller", "{namespace}.leader"), ("{namespace}.controller",)),
    Role.ALERTS: RoleNames(("regraft-alerts", "{namespace}.alerts"), ("{namespace}.alerts-writer",)),
    Role.DASHBOARD: RoleNames(("regraft-dashboard",)),
    Role.OPERATOR: RoleNames(("regraft",)),
    Role.RECORDER: RoleNames(("regraft",)),
}
