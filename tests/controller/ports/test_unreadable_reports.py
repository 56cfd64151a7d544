"""Reports that readers would refuse: each is lost alone."""

from regraft.controller.ports.plan_store import KafkaPlanStore
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.schemas.event import AdaptationEvent, EventKind, Severity


def test_an_event_that_readers_would_refuse_is_counted_and_keeps_nothing_else_from_being_stored() -> None:
    """In a transaction it would stop the plan that is stored with it, again and again."""
    store = KafkaPlanStore(KafkaAccess("127.0.0.1:1"), "reports")
    for subject in ("", "b01"):
        store.emit(AdaptationEvent(subject, EventKind.MEMBER_CHANGED, Severity.INFO, 0, "b01 is dead"))
    assert store.lost == {"reports.events": 1}
    assert store.waiting_count == 1
    store._writer.close()
