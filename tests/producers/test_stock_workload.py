"""The workload is the shipped one: real quotes in date order, real subscriptions first, shares that shift."""

import random
from collections import Counter, defaultdict

import pytest

from overlay.inventory import Inventory
from producers.broker_messages import Notification
from producers.emulator_settings import SYMBOLS_SHIPPED, WorkloadSettings
from producers.match_content import Filter, matches
from producers.place_overlay import place_overlay
from producers.stock_workload import SubscriptionMaker, advertisement, load_stock_data, subscription
from producers.virtual_overlay import VirtualOverlay, VirtualSettings

DATA = load_stock_data()


def inventory(broker_count: int = 30) -> Inventory:
    return place_overlay(broker_count, 6, random.Random(1))


def homes_by_symbol(virtual: VirtualOverlay) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for client in virtual.clients.connected.values():
        if client.role == "subscriber":
            found[str(client.predicates[1].text)].append(client.home)
    return found


def test_shipped_data_is_whole() -> None:
    """49 symbols have both quotes and subscriptions; quotes are in date order and match their advertisement."""
    assert len(DATA.symbols) == SYMBOLS_SHIPPED
    assert sum(len(thresholds) for thresholds in DATA.thresholds.values()) == 1_000
    for symbol in DATA.symbols:
        quotes = DATA.quotes[symbol]
        dates = [str(quote.content["date"]) for quote in quotes]
        assert dates == sorted(set(dates))
        assert len(quotes) == 400
        assert all(matches(advertisement(symbol), quote.content) for quote in quotes)


def test_quotes_are_published_in_date_order_and_start_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A symbol that has come to its newest quote goes on with its oldest."""
    settings = WorkloadSettings(publisher_count=1, notifications_per_s=500.0, interested_broker_count=1)
    virtual = VirtualOverlay(place_overlay(2, 2, random.Random(1), (0.01, 0.01)), settings)
    seen: list[str] = []
    publish = virtual.ledger.publish

    def note_and_publish(notification: Notification) -> int:
        seen.append(str(notification.content["date"]))
        return publish(notification)

    monkeypatch.setattr(virtual.ledger, "publish", note_and_publish)
    virtual.run_for(2_000)
    assert len(seen) > 450
    assert seen[:400] == sorted(seen[:400])
    assert seen[400:450] == seen[:50]


def test_real_subscriptions_come_first_then_like_ones() -> None:
    """The maker hands out each shipped subscription of a symbol once, then thresholds from the same shares."""
    maker = SubscriptionMaker(DATA, random.Random(1))
    shipped = {subscription("AAPL", *thresholds) for thresholds in DATA.thresholds["AAPL"]}
    first = [maker.make("AAPL") for _ in shipped]
    assert set(first) == shipped
    more = [maker.make("AAPL") for _ in range(300)]
    assert len(set(more)) > 200

    def matching_share(filters: list[Filter]) -> float:
        quotes = DATA.quotes["AAPL"]
        hits = sum(matches(filter_, quote.content) for filter_ in filters for quote in quotes)
        return hits / len(filters) / len(quotes)

    assert matching_share(more) == pytest.approx(0.97, abs=0.03)


def test_each_symbol_is_wanted_at_about_nine_brokers() -> None:
    """A symbol has nine subscriptions on average, each at a broker of its own."""
    virtual = VirtualOverlay(inventory(), WorkloadSettings(), VirtualSettings(flush_ms=None))
    virtual.run_for(5_000)
    found = homes_by_symbol(virtual)
    assert sum(len(homes) for homes in found.values()) == 9 * 49
    assert all(len(set(homes)) == len(homes) for homes in found.values())


def test_subscriptions_live_and_are_replaced() -> None:
    """The number of subscriptions stays, their names do not: about one lifetime replaces 63 % of them."""
    settings = WorkloadSettings(lifetime_s_mean=10.0, notifications_per_s=0.1)
    virtual = VirtualOverlay(inventory(), settings, VirtualSettings(flush_ms=None))
    virtual.run_for(1)
    before = {name for name, client in virtual.clients.connected.items() if client.role == "subscriber"}
    virtual.run_for(10_000)
    after = {name for name, client in virtual.clients.connected.items() if client.role == "subscriber"}
    assert len(before) == len(after)
    assert len(before - after) / len(before) == pytest.approx(0.63, abs=0.08)


def test_regime_change_replaces_all_and_shifts_shares() -> None:
    """Within its spread every subscription is another one, and other brokers and symbols draw most."""
    settings = WorkloadSettings(lifetime_s_mean=1_000.0, notifications_per_s=0.1, regime_change_s=5.0)
    virtual = VirtualOverlay(inventory(), settings, VirtualSettings(flush_ms=None))
    virtual.run_for(4_900)
    before = dict(virtual.clients.connected)
    virtual.run_for(3_200)
    after = virtual.clients.connected
    assert {name for name in before if name in after} == set(DATA.symbols)
    loads = [Counter(client.home for client in each.values()) for each in (before, after)]
    moved = sum(abs(loads[0][broker] - loads[1][broker]) for broker in virtual.overlay.brokers) / 2
    assert moved > 0.2 * 9 * 49


def test_stopped_workload_changes_nothing() -> None:
    """After the stop nobody publishes, comes or leaves."""
    virtual = VirtualOverlay(inventory(), WorkloadSettings(regime_change_s=4.0))
    virtual.run_for(3_000)
    account = virtual.finish()
    connected = dict(virtual.clients.connected)
    virtual.run_for(30_000)
    assert virtual.ledger.snapshot().published == account.published
    assert virtual.clients.connected == connected
