"""The one table of Kafka topics: name, record, key, partitions, retention, who writes and who reads.

Nothing here talks to Kafka; ``infra`` creates the topics from this table.
"""

from dataclasses import dataclass

HOUR_MS = 3_600_000
LOG_APPEND_TIME = "LogAppendTime"  # Kafka's own clock: what all brokers' clocks are held against.
CREATE_TIME = "CreateTime"  # The sender's, or whatever it says.
DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Topic:
    """One Kafka topic.

    ``retention_ms`` is None where the topic is compacted (the newest record of a key is kept for ever). ``timestamps``
    is Kafka's ``message.timestamp.type``, empty where it does not matter whose clock gives a record its time.
    ``compaction_lag_ms``: for so long a compacted topic keeps older records of a key, too. ``is_one_log``: records of
    different keys have one order, or the topic is a lock, so it may not have more than its one partition.
    """

    suffix: str
    record: str
    key: str
    writers: str
    readers: str
    partitions: int
    retention_ms: int | None
    timestamps: str = ""
    compaction_lag_ms: int = 0
    is_one_log: bool = False

    @property
    def compacted(self) -> bool:
        """Tell whether Kafka keeps the newest record of each key instead of a span of time."""
        return self.retention_ms is None


TELEMETRY = Topic(
    "telemetry", "TelemetryBatch", "broker", "producers", "streaming, recorder", 4, 24 * HOUR_MS, LOG_APPEND_TIME
)
CLIENTS = Topic("clients", "Client", "client", "producers", "controller", 1, None)
STATE = Topic("state", "StateRow", "window, kind, entity", "streaming", "controller, alerts", 1, 24 * HOUR_MS)
WINDOWS = Topic(
    "windows", "WindowClosed", "window", "streaming", "controller, alerts", 1, 24 * HOUR_MS, is_one_log=True
)
COMMANDS = Topic("commands", "Command", "broker", "controller", "producers", 1, 24 * HOUR_MS, is_one_log=True)
RESULTS = Topic("results", "CommandResult", "broker", "producers", "controller", 1, 24 * HOUR_MS)
PLANS = Topic("plans", "Plan", "plan", "controller", "controller, alerts", 1, None, is_one_log=True)
EVENTS = Topic("events", "AdaptationEvent", "subject", "controller, alerts", "alerts, operator", 1, 7 * 24 * HOUR_MS)
LEADER = Topic("leader", "LeaderTerm", "leader", "controller", "controller", 1, None, is_one_log=True)
# Kafka's time tells how old an order is, and the lag keeps one from being pushed out by a forged record at once.
ORDERS = Topic(
    "orders",
    "Order",
    "scope, subject",
    "command line, dashboard",
    "controller, alerts",
    1,
    None,
    LOG_APPEND_TIME,
    7 * DAY_MS,
    is_one_log=True,
)
AUDIT = Topic("audit", "AuditEntry", "subject", "controller", "command line", 1, 400 * DAY_MS)
ALERTS = Topic("alerts", "Alert", "rule, subject", "alerts", "alerts, command line", 1, None)
DEAD_LETTERS = Topic(
    "dead-letters",
    "DeadLetter",
    "source topic",
    "producers, streaming, controller, alerts",
    "operator, alerts",
    1,
    7 * 24 * HOUR_MS,
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
    EVENTS,
    ORDERS,
    AUDIT,
    ALERTS,
    DEAD_LETTERS,
)

DEFAULT_NAMESPACE = "regraft"


def topic_name(topic: Topic, namespace: str = DEFAULT_NAMESPACE) -> str:
    """Return the name of a topic inside a namespace, for example ``regraft.telemetry``."""
    return f"{namespace}.{topic.suffix}"
