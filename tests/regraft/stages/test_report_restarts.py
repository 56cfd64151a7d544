"""Restarts of services are reported as events, even if Kafka failed meanwhile."""

import sys
from pathlib import Path

import pytest

from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.local.kafka_server import start_kafka
from regraft.infra.local.service import Service, ServiceEvent, ServiceEventKind
from regraft.infra.local.supervise import Supervisor
from regraft.run_records.read_topics import read_whole
from regraft.schemas.event import AdaptationEvent, EventKind, Severity
from regraft.schemas.topics import EVENTS
from regraft.stages.report_restarts import report_restarts, restart_event
from tests.wait_until import wait_until

NAMESPACE = "told"


@pytest.mark.parametrize("death", ["it exited with code 1 (no more room): see out/logs/streaming.log", ""])
def test_a_restart_is_reported_with_its_cause_and_log(death: str) -> None:
    """The service is the subject, so each service has its own alert."""
    event = ServiceEvent(12.5, "streaming", ServiceEventKind.RESTARTED, 77, 2)
    why = death or "it was not ready in time: see logs/streaming.log"
    text = f"streaming, restart 2 of this run: {why}"
    expected = AdaptationEvent("streaming", EventKind.SERVICE_RESTARTED, Severity.WARNING, 12_500, text)
    assert restart_event(event, death) == expected


@pytest.mark.stack
def test_only_restarts_of_killed_services_are_reported(tmp_path: Path) -> None:
    """Restarts by the supervisor are reported; starts, stops and regular ends are not."""
    mark = tmp_path / "mark"
    script = f"import os, pathlib, time; m = pathlib.Path({str(mark)!r}); n = m.exists(); m.touch(); "
    script += "time.sleep(0.3 if not n else 600); os.kill(os.getpid(), 9)"
    with start_kafka(tmp_path / "kafka") as kafka:
        create_topics(kafka.access, namespace=NAMESPACE)
        with report_restarts(kafka.access, NAMESPACE) as reporter, Supervisor() as supervisor:
            supervisor.listen(reporter.take)
            supervisor.start(Service("killed", (sys.executable, "-c", script), tmp_path / "killed.log"))
            supervisor.start(Service("steady", ("sleep", "600"), tmp_path / "steady.log"))
            wait_until(lambda: supervisor.restarts("killed") == 1 and supervisor.is_ready("killed"))
        events = list(read_whole(kafka.access, NAMESPACE, {EVENTS: AdaptationEvent}, 20.0))
    assert [(one.subject, one.kind) for one in events] == [("killed", EventKind.SERVICE_RESTARTED)]
    assert "it was killed by signal 9" in events[0].text
