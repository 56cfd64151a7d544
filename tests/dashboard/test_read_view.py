"""Reading the live view: what the controller writes is understood, invalid content stops nothing."""

import json

from regraft.dashboard.read_view import KEYS, ViewReader
from regraft.schemas.live_view import VIEW_VERSION
from tests.dashboard.view_documents import view_texts, written_document


def test_what_the_controller_writes_is_read_without_a_error() -> None:
    """Every part of a real document is decoded; the times that change each second do not count as news."""
    reader = ViewReader(100)
    document = written_document()
    texts = view_texts(document)
    assert set(texts) <= set(KEYS)
    shown = reader.read(texts)
    assert reader.errors == {}
    assert set(texts) <= set(shown)
    assert reader.news_ms == document["time_ms"]
    assert not {"time_ms", "window_end_to_state_ms"} & set(shown["counts"])
    later = view_texts({**document, "time_ms": document["time_ms"] + 1000})
    assert reader.read(later) == {"counts": shown["counts"]}
    assert reader.news_ms == document["time_ms"] + 1000


def test_windows_have_rate_completeness_and_latency() -> None:
    """The newest window is known in full; of earlier ones, what costs and latencies contain."""
    document = written_document()
    windows = ViewReader(100).read(view_texts(document))["windows"]
    newest, window = windows[-1], document["window"]
    assert newest.window_end_ms == window["end_ms"]
    assert newest.notifications_per_s == window["notifications"] * 1000 / (window["end_ms"] - window["start_ms"])
    assert [point.state_latency_ms for point in windows] == document["window_end_to_state_ms"][-len(windows) :]
    assert len(windows) == len(document["cost"])
    assert [point.notifications_per_s for point in windows] == [
        point["notifications_per_s"] for point in document["cost"]
    ]
    for point in document["cost"]:
        del point["notifications_per_s"]  # as an earlier version of the controller wrote them
    assert ViewReader(100).read(view_texts(document))["windows"][0].notifications_per_s is None


def test_windows_are_bounded() -> None:
    """Only the newest windows are kept, up to the bound."""
    windows = ViewReader(3).read(view_texts(written_document()))["windows"]
    assert [point.window_end_ms for point in windows] == [
        point["window_end_ms"] for point in written_document()["cost"][-3:]
    ]


def test_costs_of_an_earlier_controller_stay_shown_as_long_as_its_windows() -> None:
    """A new leader begins with its own; both charts have the same time axis, and the same bound."""
    document = written_document()
    later = {**document, "cost": document["cost"][-1:]}
    reader = ViewReader(100)
    first = reader.read(view_texts(document))
    assert len(first["cost"]) == len(document["cost"]) > 1
    second = reader.read(view_texts(later))
    assert second["cost"] == first["cost"]
    assert [point.window_end_ms for point in second["cost"]] == [point.window_end_ms for point in second["windows"]]
    assert len(ViewReader(3).read(view_texts(document))["cost"]) == 3


def test_what_was_later_is_over_once_clocks_are_set_back() -> None:
    """Windows and costs from what is now the future would hide all that follow."""
    document, later = written_document(), written_document()
    for point in later["cost"]:
        point["window_end_ms"] += 3_600_000
    for name in ("start_ms", "end_ms"):
        later["window"][name] += 3_600_000
    reader = ViewReader(100)
    reader.read(view_texts(later))
    shown = reader.read(view_texts(document))
    ends_ms = [point["window_end_ms"] for point in document["cost"]]
    assert [point.window_end_ms for point in shown["cost"]] == ends_ms
    assert [point.window_end_ms for point in shown["windows"]] == ends_ms


def test_an_unreadable_text_leaves_the_part_unchanged() -> None:
    """It is reported in a sentence until the text is readable again."""
    reader = ViewReader(100)
    texts = view_texts(written_document())
    reader.read(texts)
    for broken in (b"{half", b"[1, 2]", b'"text"', b"\xff\xfe"):
        assert "configuration" not in reader.read({**texts, "configuration": broken})
        assert "configuration of the live view cannot be read" in reader.errors["configuration"]
    nameless = json.dumps([{"no": "name"}]).encode()
    assert "plans" not in reader.read({**texts, "configuration": broken, "plans": nameless})
    assert set(reader.errors) == {"configuration", "plans"}
    assert set(reader.read(texts)) >= {"configuration", "plans"}
    assert reader.errors == {}


def test_a_broken_window_does_not_hide_the_rest() -> None:
    """A window without its end is reported; everything else is shown."""
    reader = ViewReader(100)
    shown = reader.read({**view_texts(written_document()), "window": b'{"start_ms": 1}'})
    assert shown["plans"]
    assert "window of the live view cannot be read (Object missing required field" in reader.errors["window"]


def test_a_view_of_a_newer_version_is_ignored_and_reported_in_one_sentence() -> None:
    """None of its parts is read; once the controller has the known version again, reading resumes."""
    reader = ViewReader(100)
    texts = view_texts(written_document())
    reader.read(texts)
    newer = json.dumps({**json.loads(texts["counts"]), "version": VIEW_VERSION + 1}).encode()
    assert reader.read({**texts, "counts": newer, "plans": b"{}"}) == {}
    (sentence,) = reader.errors.values()
    assert f"the live view cannot be read: it has version {VIEW_VERSION + 1}" in sentence
    assert reader.read({**texts, "refusals": b"{}"}) == {"refusals": {}}
    assert reader.errors == {}


def test_missing_keys_leave_the_view_unchanged() -> None:
    """If a server has lost everything, the page keeps showing what it had."""
    reader = ViewReader(100)
    reader.read(view_texts(written_document()))
    assert reader.read(dict.fromkeys(KEYS)) == {}


def test_whatever_is_wrong_with_one_text_the_others_are_shown() -> None:
    """JSON that is too deep raises another error than JSON that is wrong; neither may end the dashboard's polling."""
    reader, deep = ViewReader(100), b"[" * 100_000 + b"]" * 100_000
    texts = view_texts(written_document())
    for part in ("alerts", "configuration", "counts"):
        text = b'{"a":' + deep + b"}" if part == "alerts" else deep
        shown = reader.read({**texts, part: text, "plans": b"[]"})
        assert part not in shown
        assert part in reader.errors
    assert set(reader.read({**texts, "alerts": b"{}"})) >= {"counts", "plans"}
    assert not reader.errors
