"""Find why a decoded batch is refused, by the record's own bounds and the known brokers, in Spark's expressions.

Only :mod:`schemas.bounds` defines bounds; clocks and undecodable records belong to :mod:`streaming.read_telemetry`.
"""

from collections.abc import Sequence
from functools import partial

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from regraft.schemas.bounds import NAME_LENGTH_MAX, UNCLEAN, FieldBound, field_bounds
from regraft.schemas.broker_topics import NO_AGENT_TEXT, WRONG_AGENT_TEXT, BrokerTopics
from regraft.schemas.packed_cells import COUNT_BYTES, MASK_BYTES
from regraft.schemas.packed_cells import SEPARATOR as LINE_END
from regraft.schemas.telemetry import TelemetryBatch
from regraft.schemas.topics import TELEMETRY, topic_name

SEPARATOR = ","
PRINTABLE_ASCII = " -~"
PEERS = ("queues.peer", "probes.peer")

Refusal = tuple[Column, Column]


def implausible() -> list[Refusal]:
    """Return refusals beyond the record's bounds; text that is not UTF-8 comes first: no other check may read it."""
    bounds = field_bounds(TelemetryBatch)
    texts = _texts_beyond([bound for bound in bounds if bound.is_text])
    torn = F.lit("the names or columns of a packed second in it do not fit its layout")
    numbers = [_number_beyond(bound) for bound in bounds if not bound.is_text]
    return [*texts, *numbers, (F.exists("batch.seconds", _is_torn), torn)]


def unknown_brokers(brokers: Sequence[str]) -> list[Refusal]:
    """Return refusals of batches that name other brokers than these; none if ``brokers`` is empty, thus unknown."""
    if not brokers:
        return []
    broker = F.col("batch.broker")
    reason = " is not in the inventory: `regraft members add` admits it, or stop the process that sends in its name"
    refusals: list[Refusal] = [(~broker.isin(*brokers), F.concat(F.lit("broker "), broker, F.lit(reason)))]
    for name in PEERS:
        is_unlisted = F.exists(f"batch.{name}", lambda peer: ~peer.isin("", *brokers))
        refusals.append(
            (is_unlisted, F.concat(F.lit(f"a {name} of broker "), broker, F.lit(" is not in the inventory")))
        )
    return refusals


def wrong_topics(topics: BrokerTopics) -> list[Refusal]:
    """Return refusals of batches in another topic than their broker's agent's; none without agents."""
    broker, topic = F.col("batch.broker"), F.col("topic")
    refusals: list[Refusal] = []
    for agent in topics.agents if topics.agent_of else ():
        own = [name for name, its_agent in topics.agent_of.items() if its_agent == agent]
        is_wrong = topic != F.lit(topic_name(TELEMETRY, topics.namespace, agent))
        reason = F.format_string(WRONG_AGENT_TEXT, broker, F.lit(agent or NO_AGENT_TEXT), topic)
        refusals.append((broker.isin(*own) & is_wrong, reason))
    return refusals


def _texts_beyond(bounds: Sequence[FieldBound]) -> list[Refusal]:
    """Return refusals of names; their characters are checked in one joined text."""
    columns = [(bound, F.col(f"batch.{bound.name}")) for bound in bounds]
    texts = [F.array_join(column, SEPARATOR) if len(bound.path) > 1 else column for bound, column in columns]
    packed, joined = F.array_join("batch.seconds.publishers", LINE_END), F.concat_ws(SEPARATOR, *texts)
    unclean = F.lit("a name in it has characters that cannot be shown")
    refusals: list[Refusal] = [
        (~F.is_valid_utf8(joined) | ~F.is_valid_utf8(packed), F.lit("a name in it is not UTF-8")),
        (joined.rlike(f"[{UNCLEAN}]"), unclean),
    ]
    for bound, column in columns:
        assert bound.is_clean
        assert bound.most is not None
        least, most = bound.least or 0, bound.most
        if len(bound.path) == 1:
            is_beyond = ~F.length(column).between(least, most)
        else:
            is_beyond = F.exists(column, partial(_is_beyond, least, most))
        refusals.append((is_beyond, F.lit(f"{bound.name} is shorter than {least} or longer than {most} characters")))
    return refusals


def _is_torn(second: Column) -> Column:
    """Mark batches with a packed second that violates its layout (:mod:`schemas.packed_cells`)."""
    names = second["publishers"]
    # Java splits fast by a single character; `translate` and `replace` check each byte separately.
    count = F.size(F.split(names, LINE_END))
    # Nearly all names are printable ASCII, a single range of characters, which matches ten times as fast.
    torn = ~(names.rlike(_lines_of(PRINTABLE_ASCII)) | names.rlike(_lines_of(f"^{UNCLEAN}")))
    for name in ("blocks", "local_deliveries", "bytes"):
        torn |= F.length(second[name]) != count * COUNT_BYTES
    torn |= F.length(second["masks"]) != count * MASK_BYTES
    return torn | ~F.length(second["published"]).isin(F.lit(0), count * MASK_BYTES)


def _lines_of(characters: str) -> str:
    """Return the pattern of one or more lines, each a name made of these characters."""
    name = f"[{characters}]{{1,{NAME_LENGTH_MAX}}}+"
    return rf"^{name}(?:{LINE_END}{name})*+\z"


def _is_beyond(least: float, most: float, text: Column) -> Column:
    return ~F.length(text).between(least, most)


def _number_beyond(bound: FieldBound) -> Refusal:
    column = F.col(f"batch.{bound.name}")
    if bound.is_list:
        size = F.size(column)
        reason = F.concat(F.lit(f"{bound.name} has "), size, F.lit(f" entries, at most {bound.most} are accepted"))
        return size > F.lit(bound.most), reason
    # Spark sorts NaN after all numbers, so the maximum shows it.
    least, most = (F.array_min(column), F.array_max(column)) if len(bound.path) > 1 else (column, column)
    worst = F.when(least < F.lit(bound.least), least).otherwise(most)
    reason = F.concat(F.lit(f"{bound.name} is "), worst, F.lit(f", {bound.least} to {bound.most} are accepted"))
    return (least < F.lit(bound.least)) | (most > F.lit(bound.most)), reason
