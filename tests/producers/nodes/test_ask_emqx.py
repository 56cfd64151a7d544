"""What EMQX's clients want, from the list that its interface gives."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.producers.nodes.connectors.ask_api import BrokerApi, NoAnswerError
from regraft.producers.nodes.mqtt import ask_emqx
from regraft.producers.nodes.mqtt.ask_emqx import filters_of_clients
from regraft.producers.nodes.mqtt.mqtt_interest import MqttInterest
from tests.producers.nodes.emqx_stand_in import KEY, SECRET, EmqxList
from tests.producers.nodes.http_stand_in import answering


def test_emqx_lists_all_pages() -> None:
    """Each subscription is found once, whatever the page size; EMQX's own prefixes are not part of a filter."""
    emqx = EmqxList(page_max=2)
    emqx.subscriptions = [
        ("a", "x/#"), ("a", "y"), ("b", "$queue/z"), ("b", "$exclusive/w"), ("c", "$share/g/v/+"),
    ]  # fmt: skip
    with emqx.serving() as url:
        found = filters_of_clients(BrokerApi(url, KEY, SECRET))
    assert found == {"a": ["x/#", "y"], "b": ["z", "w"], "c": ["$share/g/v/+"]}
    assert emqx.asked == 3


def test_too_many_subscriptions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endless list is not read to its end, and no part of it is used: missing subscriptions would seem ended."""
    monkeypatch.setattr(ask_emqx, "PAGES_MAX", 2)
    emqx = EmqxList(page_max=1)
    emqx.subscriptions = [("a", f"t{number}") for number in range(3)]
    with emqx.serving() as url, pytest.raises(NoAnswerError, match="2,000"):
        filters_of_clients(BrokerApi(url, KEY, SECRET))


@pytest.mark.parametrize(
    "answer", [{}, [], {"data": [{"topic": "x"}], "meta": {}}, {"data": {}, "meta": {}}, {"data": []}]
)
def test_an_answer_without_a_list_is_refused(answer: object) -> None:
    """It is never read as an empty list, which would end all interest."""
    with answering(lambda *_: (200, answer)) as url, pytest.raises(NoAnswerError):
        filters_of_clients(BrokerApi(url))


def test_a_wrong_key_is_reported() -> None:
    """EMQX's refusal is reported with the requested address."""
    with EmqxList().serving() as url, pytest.raises(NoAnswerError, match=rf"{url}.*401"):
        filters_of_clients(BrokerApi(url, KEY, "wrong"))


Lists = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.sets(st.sampled_from(["x", "x/#", "+/y", "#", "bad#"])), max_size=3)
)


@given(Lists)
def test_successive_lists_leave_the_interest_of_the_last_one(lists: list[dict[str, set[str]]]) -> None:
    """Whatever was listed before, the last list is wanted; no subject begins twice or ends without having begun."""
    wanted: set[str] = set()

    def note(subject: str, is_wanted: bool) -> None:
        assert (subject in wanted) is not is_wanted
        (wanted.add if is_wanted else wanted.discard)(subject)

    interest = MqttInterest(note, "regraft-b01", 60.0, Counter())
    for known in lists:
        interest.replace({**{name: sorted(filters) for name, filters in known.items()}, "regraft-b01": ["never"]})
    fresh: set[str] = set()
    last = MqttInterest(lambda subject, _: fresh.add(subject), "regraft-b01", 60.0, Counter())
    last.replace(lists[-1] if lists else {})
    assert wanted == fresh
    assert "never" not in wanted
