"""The form of Mosquitto's log is learned from the node's own line; what the log does not show is said."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from regraft.producers.nodes.mqtt.log_line_form import LINE_BYTES_MAX
from regraft.producers.nodes.mqtt.mosquitto_reports import MosquittoReports
from regraft.producers.nodes.mqtt.mqtt_interest import LOG_TOPIC, MqttInterest

ID, USER = "regraft-b01-0123abcd", "b01 node"
FORMATS = (
    "", "%s", "%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%d %H:%M:%S", "%a %b %e %H:%M:%S %Y", "%e.%m. %l:%M %p (%Z)",
    "[%d/%b/%Y:%H:%M:%S]", "1 2 %s: x:", "%k",
)  # fmt: skip
EARLY = time.struct_time((2026, 5, 4, 3, 2, 1, 0, 124, 0))
LATE = time.struct_time((2026, 11, 27, 14, 10, 55, 4, 331, 1))


class Site:
    """The reports of one broker whose log has the given format of time."""

    def __init__(self, format_: str = "%s", own: str = ID, file: Path | None = None) -> None:
        self.format, self.own = format_, own
        self.wanted: dict[str, bool] = {}
        self.counts: Counter[str] = Counter()
        self.interest = MqttInterest(self.wanted.__setitem__, "regraft-b01", 3_600.0, self.counts)
        self.reports = MosquittoReports("b01", (ID, USER), file, self.counts)
        self.own_filter = self.reports.begin_connection()

    def line(self, entry: str, when: time.struct_time = EARLY) -> bytes:
        stamp = time.strftime(self.format, when)
        return f"{stamp}: {entry}".encode()[:LINE_BYTES_MAX] if self.format else entry.encode()[:LINE_BYTES_MAX]

    def take(self, kind: str, entry: str, when: time.struct_time = EARLY) -> None:
        self.reports.take(self.interest, f"{LOG_TOPIC}{kind}", self.line(entry, when), 0.0)

    def begin(self) -> None:
        self.take("M/subscribe", f"{self.own} 1 {self.own_filter}")


@pytest.mark.parametrize("own", [ID, USER, "a name of its certificate"])
@pytest.mark.parametrize("format_", FORMATS)
def test_any_form_of_time_is_learned_from_the_nodes_own_line(format_: str, own: str) -> None:
    """The node's own filter is nobody's wish, whatever the log calls the node; clients' lines are read at any time."""
    site = Site(format_, own)
    for kind, entry in (("M/subscribe", f"{own} 1 {LOG_TOPIC}#"), ("M/subscribe", f"{own} 1 {site.own_filter}")):
        site.take(kind, entry)
    for when in (EARLY, LATE):
        site.take("M/subscribe", f"{own} 1 #", when)
        site.take("M/subscribe", f"12: a client 0 a/{when.tm_mon}", when)
    site.take("M/unsubscribe", "12: a client a/5", LATE)
    assert site.wanted == {"a.5": False, "a.11": True}
    assert not site.counts


def test_a_client_with_the_nodes_user_as_its_name_is_a_client() -> None:
    """Only what the log calls the node is the node, not every name that it could have."""
    site = Site(own=ID)
    site.begin()
    site.take("M/subscribe", f"{USER} 1 a")
    site.take("M/subscribe", f"x 1 {site.own_filter}.")
    assert site.wanted == {"a": True}


def test_what_a_former_version_took_for_a_clients_wish_ends() -> None:
    """The file of interest may hold the node's own user as a client that wants everything."""
    site = Site(own=USER)
    site.interest.restore({USER: ["#"], "c": ["a"]})
    site.begin()
    assert {filter_ for filter_, is_wanted in site.wanted.items() if is_wanted} == {"a"}


def test_what_the_log_does_not_show_is_missing_until_it_does() -> None:
    """The node's own end of a subscription, and a connection, prove that lines of these kinds come."""
    site = Site()
    assert not site.reports.is_understood
    site.begin()
    assert site.reports.is_understood
    assert len(site.reports.missing) == 2
    site.take("M/unsubscribe", f"{ID} {site.own_filter}")
    (missing,) = site.reports.missing
    assert "connection_messages true" in missing
    site.take("N", "New connection from 127.0.0.1:42014 on port 1883.")
    assert not site.reports.missing


def test_a_line_that_was_cut_is_no_wish() -> None:
    """Part of a filter is another filter: it is counted, and the log says what to do."""
    site = Site()
    site.begin()
    with capture_logs() as logs:
        site.take("M/subscribe", f"c 1 a/{'é' * 600}")
        site.take("M/subscribe", f"c 1 b/{'x' * (LINE_BYTES_MAX - len(site.line('c 1 b/')) - 1)}")
    assert [filter_[:2] for filter_ in site.wanted] == ["b."]
    assert site.counts == {"log_line_cut": 1}
    assert "connectors.mqtt.filters" in logs[0]["reason"]


def test_another_form_is_learned_at_the_next_connection() -> None:
    """After Mosquitto has read other settings its lines wait until the node has made another connection."""
    site = Site()
    site.begin()
    site.format = "%Y-%m-%d %H:%M:%S"
    site.take("M/subscribe", "c 1 a")
    assert site.reports.is_outdated
    assert not site.wanted
    site.own_filter = site.reports.begin_connection()
    site.begin()
    assert not site.reports.is_outdated
    assert site.wanted == {"a": True}
    assert not site.counts


def test_a_file_may_add_its_own_time_and_have_older_forms(tmp_path: Path) -> None:
    """A collector of output writes before each line; lines of an older form are counted, and never misread."""
    file = tmp_path / "mosquitto.log"
    site = Site("%Y-%m-%d %H:%M:%S", file=file)
    lines = [site.line(entry) for entry in ("c 1 a", f"{ID} 1 {LOG_TOPIC}#", f"{ID} 1 {site.own_filter}", "d 1 e")]
    file.write_bytes(b"1795672537: old 1 b\n" + b"".join(b"Nov 27 host mosquitto[17]: %b\n" % line for line in lines))
    site.begin()
    assert site.reports.catch_up(site.interest, 0.0)
    site.take("M/subscribe", "c 1 f")
    assert site.wanted == {"a": True, "f": True}
    assert site.counts == {"log_line_unreadable": 1}


def test_a_file_that_cannot_be_read_is_said_sparsely(tmp_path: Path) -> None:
    """It is tried again every few milliseconds, but the log is not flooded."""
    site = Site(file=tmp_path / "missing.log")
    with capture_logs() as logs:
        for _ in range(200):
            assert not site.reports.catch_up(site.interest, 0.0)
    assert site.counts == {"log_not_read": 200}
    assert len(logs) == 8
    assert site.reports.file_error == "cannot be read (No such file or directory)"


def test_what_waited_for_the_file_at_the_connection_before_is_over(tmp_path: Path) -> None:
    """The broker has died meanwhile: the file holds these lines, and behind them, that it starts again."""
    file = tmp_path / "mosquitto.log"
    site = Site(file=file)
    connected, wants = "New client connected from 10.0.0.9:1 as c (p2, c1, k60).", "c 0 a"
    site.take("N", connected)
    site.take("M/subscribe", wants)
    own_filter = site.reports.begin_connection()
    lines = [connected, wants, "mosquitto version 2.0.22 starting", f"{ID} 1 {own_filter}"]
    file.write_bytes(b"".join(site.line(each) + b"\n" for each in lines))
    assert site.reports.catch_up(site.interest, 0.0)
    assert site.wanted == {}
