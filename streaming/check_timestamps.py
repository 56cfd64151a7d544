"""Check that Kafka sets the timestamps of telemetry, for starts that do not check the whole table of topics.

The stages of ``regraft`` check all their topics when they start.
"""

import structlog

from regraft.infra.kafka.compare_topics import TIMESTAMP_TYPE
from regraft.infra.kafka.create_topics import alter_hint, timestamp_type
from regraft.schemas.topics import LOG_APPEND_TIME
from regraft.streaming.job_errors import EXIT_REFUSED, StreamingJobError
from regraft.streaming.source_topics import source_topics
from regraft.streaming.streaming_settings import StreamingSettings

log = structlog.get_logger(__name__)


def check_timestamps(settings: StreamingSettings) -> None:
    """Raise StreamingJobError if senders set telemetry's timestamps: clocks must be compared with Kafka's own."""
    if settings.create_time or settings.bounds.future_ms_max is None:
        return
    for topic in source_topics(settings):
        kind = timestamp_type(settings.kafka, topic)
        if kind is None:
            log.warning("timestamp_type_unknown", topic=topic, wanted=LOG_APPEND_TIME)
        elif kind != LOG_APPEND_TIME:
            hint = alter_hint(settings.kafka, topic, {TIMESTAMP_TYPE: LOG_APPEND_TIME})
            raise StreamingJobError(
                f"{TIMESTAMP_TYPE} of topic {topic} is {kind}, so its times come from the senders and a "
                f"wrong clock cannot be detected: alter it ({hint}), or set streaming.create_time for a replay",
                EXIT_REFUSED,
            )
