"""The one table of Kafka topics: name, record, key, partitions, retention, who writes and who reads.

Nothing here connects to Kafka; ``infra`` creates the topics, and the rights of their users, from this table.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from regraft.schemas.units import DAY_MS

LOG_APPEND_TIME = "LogAppendTime"  # Kafka's own clock, the reference for the clocks of all brokers.
CREATE_TIME = "CreateTime"  # The sender's clock, or any value that the sender sets.


class Role(StrEnum):
    """The users of topics; in Kafka each role is a separate principal, or several (one for each operator)."""

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

    ``retention_ms`` is None if the topic is compacted (the newest record of each key is kept forever). ``timestamps``
    is Kafka's ``message.timestamp.type``, empty if it does not matter whose clock gives a record its time. For
    ``compaction_lag_ms``, a compacted topic also keeps older records of a key. ``is_one_log`` means that the topic must
    not have more than one partition, because it is a lock, or because the order of records with different keys matters.
    ``is_by_agent`` means that each agent of brokers has its own topic, which no other agent needs.
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
        """Return True if Kafka keeps the newest record of each key, instead of records for some time."""
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
# Repeated until the broker is admitted, so it need not be kept.
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
# Kafka's time shows how old an order is; with the lag, a forged record does not displace a genuine one at once.
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
AUDIT = Topic(
    "audit", "AuditEntry", "subject", (CONTROLLER,), (CONTROLLER, Role.ALERTS, OPERATOR, RECORDER), 1, 400 * DAY_MS
)
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
NO_AGENT = ""  # The agent of brokers without one.
NAMESPACE_PATTERN = re.compile(r"[A-Za-z0-9._-]{1,128}")
AGENT_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")  # Part of topic names, so a dot would be ambiguous.


def topic_name(topic: Topic, namespace: str = DEFAULT_NAMESPACE, agent: str = NO_AGENT) -> str:
    """Return the name of a topic in a namespace: ``regraft.plans``, or with an agent ``regraft.commands.west``."""
    name = f"{namespace}.{topic.suffix}"
    return f"{name}.{agent}" if agent and topic.is_by_agent else name


def topic_names(topic: Topic, namespace: str, agents: Iterable[str]) -> tuple[str, ...]:
    """Return the names of a topic: one for each agent if it is split by agent."""
    return tuple(dict.fromkeys(topic_name(topic, namespace, agent) for agent in agents))


@dataclass(frozen=True, slots=True)
class RoleNames:
    """What a role uses in Kafka besides topics: its consumer groups and transactional ids.

    A trailing * makes a name a prefix; {namespace} is that of the topics.
    """

    groups: tuple[str, ...] = ()
    transactions: tuple[str, ...] = ()


# Readers that commit nothing also name a group, their client id, because Kafka requires a right to it anyway.
NAMES_OF: dict[Role, RoleNames] = {
    Role.BROKERS: RoleNames(("regraft-emulator",)),
    Role.STREAMING: RoleNames(("regraft-streaming", "spark-kafka-source-*")),
    # Controllers elect their leader through a group; the leader fences off its predecessors with a transactional id.
    Role.CONTROLLER: RoleNames(("regraft-controller", "{namespace}.leader"), ("{namespace}.controller",)),
    Role.ALERTS: RoleNames(("regraft-alerts", "{namespace}.alerts"), ("{namespace}.alerts-writer",)),
    Role.DASHBOARD: RoleNames(("regraft-dashboard",)),
    Role.OPERATOR: RoleNames(("regraft",)),
    Role.RECORDER: RoleNames(("regraft",)),
}
