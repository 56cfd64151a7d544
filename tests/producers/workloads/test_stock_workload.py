"""The workload is the shipped one: real quotes in date order, real subscriptions first, shares that shift."""

import random
from collections import Counter, defaultdict
from dataclasses import replace

import pytest

from regraft.overlay.inventory.inventory import Inventory
from regraft.producers.brokers.broker_messages import Notification
from regraft.producers.brokers.match_content import Filter, matches
from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.virtual_overlay import VirtualOverlay, VirtualSettings
from regraft.producers.workloads.stock_settings import SYMBOLS_SHIPPED, RegimeChange, WorkloadSettings
from regraft.producers.workloads.stock_workload import SubscriptionMaker, advertisement, load_stock_data, subscription
from regraft.schemas.client import Role

DATA = load_stock_data()


def inventory(broker_count: int = 30) -> Inventory:
    return place_overlay(broker_count, 6, random.Random(1))


def homes_by_symbol(virtual: VirtualOverlay) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for client in virtual.clients.connected.values():
        if client.role == "subscriber":
            found[str(client.predicates[1].text)].append(client.home)
    return found


def test_shipped_data_is_complete() -> None:
    """49 symbols have both quotes and subscriptions; quotes are in date order and match their advertisement."""
    assert len(DATA.symbols) == SYMBOLS_SHIPPED
    assert sum(len(thresholds) for thresholds in DATA.thresholds.values()) == 1_000
    for symbol in DATA.symbols:
        quotes = DATA.quotes[symbol]
        dates = [str(quote.content["date"]) for quote in quotes]
        assert dates == sorted(set(dates))
        assert len(quotes) == 400
        assert all(matches(advertisement(symbol), quote.content) for quote in quotes)


def test_quotes_are_published_in_date_order_and_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """A symbol that has reached its newest quote continues with its oldest."""
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


def test_real_subscriptions_come_first_then_similar_ones() -> None:
    """Each shipped subscription of a symbol is used once, then thresholds drawn from the same shares."""
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
    """A symbol has nine subscriptions on average, each at another broker."""
    virtual = VirtualOverlay(inventory(), WorkloadSettings(), VirtualSettings(flush_ms=None))
    virtual.run_for(5_000)
    found = homes_by_symbol(virtual)
    assert sum(len(homes) for homes in found.values()) == 9 * 49
    assert all(len(set(homes)) == len(homes) for homes in found.values())


def test_subscriptions_end_and_are_replaced() -> None:
    """Their number stays, their names do not: 63 % of them are replaced in about one lifetime."""
    settings = WorkloadSettings(lifetime_s_mean=10.0, notifications_per_s=0.1)
    virtual = VirtualOverlay(inventory(), settings, VirtualSettings(flush_ms=None))
    virtual.run_for(1)
    before = {name for name, client in virtual.clients.connected.items() if client.role == "subscriber"}
    virtual.run_for(10_000)
    after = {name for name, client in virtual.clients.connected.items() if client.role == "subscriber"}
    assert len(before) == len(after)
    assert len(before - after) / len(before) == pytest.approx(0.63, abs=0.08)


def test_regime_change_replaces_all_and_shifts_shares() -> None:
    """Within its spread every subscription is replaced, and other brokers and symbols become the most popular."""
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


def test_a_stopped_workload_changes_nothing() -> None:
    """After the stop no client publishes, connects or leaves."""
    virtual = VirtualOverlay(inventory(), WorkloadSettings(regime_change_s=4.0))
    virtual.run_for(3_000)
    account = virtual.finish()
    connected = dict(virtual.clients.connected)
    virtual.run_for(30_000)
    assert virtual.ledger.snapshot().published == account.published
    assert virtual.clients.connected == connected


def test_bursts_multiply_the_rate_while_they_last() -> None:
    """Two bursts have the set times and lengths, and leave the rate as it was; subscriptions are the same."""
    calm = WorkloadSettings(publisher_count=10, notifications_per_s=2.0, lifetime_s_mean=1_000.0)
    bursty = replace(calm, burst_every_s=60.0, burst_s=20.0, burst_factor=5.0, burst_count=2)
    counts: dict[str, list[int]] = {}
    for name, settings in (("calm", calm), ("bursty", bursty)):
        virtual = VirtualOverlay(inventory(6), settings, VirtualSettings(flush_ms=None))
        counts[name] = []
        for _ in range(10):  # 20 s each: the bursts are the spans that begin at 60 and 120 s.
            before = virtual.ledger.snapshot().published
            virtual.run_for(20_000)
            counts[name].append(virtual.ledger.snapshot().published - before)
    assert counts["calm"][:3] == counts["bursty"][:3]
    for number, count in enumerate(counts["bursty"]):
        expected = 2_000 if number in (3, 6) else 400
        assert expected * 0.8 < count < expected * 1.2


def test_the_last_burst_has_its_own_length_and_publishers_enter_at_few_brokers() -> None:
    """The first of two lasts 20 s, the second 60 s, longer than the pause between bursts."""
    settings = WorkloadSettings(
        publisher_count=10, notifications_per_s=2.0, lifetime_s_mean=1_000.0, burst_every_s=40.0, burst_s=20.0,
        burst_factor=5.0, burst_count=2, burst_s_last=60.0, publisher_broker_count=2,
    )  # fmt: skip
    virtual = VirtualOverlay(inventory(6), settings, VirtualSettings(flush_ms=None))
    counts = []
    for _ in range(9):  # 20 s each: bursts from 40 to 60 s and from 80 to 140 s.
        before = virtual.ledger.snapshot().published
        virtual.run_for(20_000)
        counts.append(virtual.ledger.snapshot().published - before > 1_000)
    assert counts == [False, False, True, False, True, True, True, False, False]
    homes = {client.home for client in virtual.clients.connected.values() if client.role is Role.PUBLISHER}
    assert len(homes) == 2


def test_interests_shift_repeatedly() -> None:
    """The first shift comes at its set time, each further one after the same pause."""
    settings = WorkloadSettings(
        publisher_count=3,
        notifications_per_s=0.1,
        lifetime_s_mean=10_000.0,
        regime_change_s=5.0,
        regime_change_every_s=20.0,
        regime_change_spread_s=1.0,
    )
    virtual = VirtualOverlay(inventory(6), settings, VirtualSettings(flush_ms=None))
    shifts = []
    for _ in range(60):
        virtual.run_for(1_000)
        shifted_ms = virtual.workload.regime_changed_ms
        if shifted_ms is not None and shifted_ms not in shifts:
            shifts.append(shifted_ms)
    assert [shift - shifts[0] for shift in shifts] == [0.0, 20_000.0, 40_000.0]
    every_only = replace(settings, regime_change_s=None)
    virtual = VirtualOverlay(inventory(6), every_only, VirtualSettings(flush_ms=None))
    virtual.run_for(19_000)
    assert virtual.workload.regime_changed_ms is None
    virtual.run_for(2_000)
    assert virtual.workload.regime_changed_ms is not None


ALL_BITS = (1 << 64) - 1


def published_by_symbol(virtual: VirtualOverlay, duration_ms: float) -> Counter[str]:
    """Return what each symbol publishes in this time, by the sequence numbers of telemetry."""
    virtual.run_for(duration_ms)
    newest: Counter[str] = Counter()
    for batch in virtual.telemetry.batches:
        for cell in batch.deliveries:
            newest[cell.publisher] = max(
                newest[cell.publisher], cell.block * 64 + (cell.published & ALL_BITS).bit_length()
            )
    return newest


def test_one_publisher_publishes_more_from_the_change_on() -> None:
    """One symbol's rate rises by the configured factor; other rates and subscriptions stay."""
    settings = WorkloadSettings(
        publisher_count=10,
        lifetime_s_mean=10_000.0,
        regime_change_s=60.0,
        regime_change_kind=RegimeChange.PUBLISHER,
        regime_change_factor=10.0,
    )
    virtual = VirtualOverlay(inventory(6), settings)
    before = published_by_symbol(virtual, 59_000)
    subscribed = dict(virtual.clients.connected)
    after = published_by_symbol(virtual, 61_000)
    shares = sorted((after[symbol] - before[symbol]) / before[symbol] for symbol in before)
    assert all(share < 2 for share in shares[:-1])
    assert shares[-1] > 5
    assert len(subscribed.keys() & virtual.clients.connected.keys()) > 0.95 * len(subscribed)


def test_a_crowd_comes_and_goes() -> None:
    """Meanwhile every broker wants one symbol, with half of all subscriptions; afterwards all is as before."""
    settings = WorkloadSettings(
        notifications_per_s=0.1,
        lifetime_s_mean=10_000.0,
        regime_change_s=5.0,
        regime_change_kind=RegimeChange.CROWD,
        regime_change_for_s=20.0,
    )
    virtual = VirtualOverlay(inventory(), settings, VirtualSettings(flush_ms=None))
    largest = []
    for _ in range(3):  # Before, meanwhile and after.
        virtual.run_for(4_000 if not largest else 15_000)
        homes = max(homes_by_symbol(virtual).values(), key=len)
        largest.append((len(homes), len(set(homes))))
    count = 9 * 49
    assert largest[0][0] < count / 8
    assert largest[2][0] < count / 8
    assert largest[1][0] == pytest.approx(count / 2, rel=0.2)
    assert largest[1][1] == len(virtual.overlay.brokers)


def test_the_day_goes_around_the_brokers() -> None:
    """At noon at the first broker most subscriptions are near it, half a day later on the other side."""
    settings = WorkloadSettings(
        publisher_count=10,
        notifications_per_s=0.1,
        lifetime_s_mean=2.0,
        broker_load_exponent=0.0,
        regime_change_s=1.0,
        regime_change_kind=RegimeChange.DAY,
        regime_change_for_s=40.0,
    )
    virtual = VirtualOverlay(inventory(), settings, VirtualSettings(flush_ms=None))
    quarter = len(virtual.overlay.brokers) // 4
    near = {*list(virtual.overlay.brokers)[:quarter], *list(virtual.overlay.brokers)[-quarter:]}
    virtual.run_for(1_000)
    shares = []
    for _ in range(2):
        virtual.run_for(20_000)
        homes = [home for homes in homes_by_symbol(virtual).values() for home in homes]
        shares.append(sum(home in near for home in homes) / len(homes))
    assert shares[0] < 0.4
    assert shares[1] > 0.6


def test_wrong_bursts_and_shifts_are_reported() -> None:
    """Endless bursts, overlapping changes and unknown changes are reported."""
    (error,) = WorkloadSettings(regime_change_kind="weather").errors()
    assert error == "regime_change_kind is 'weather': must be one of interests, publisher, crowd, day"
    (error,) = WorkloadSettings(regime_change_kind="crowd", regime_change_every_s=50.0).errors()
    assert error.startswith("regime_change_every_s is 50: must be above regime_change_for_s (60),")
    assert WorkloadSettings(burst_every_s=10.0, burst_s=10.0).errors() == [
        "burst_every_s is 10: must be above burst_s (10), or none for no bursts"
    ]
    (error,) = WorkloadSettings(regime_change_every_s=2.0, regime_change_spread_s=3.0).errors()
    assert error.startswith("regime_change_every_s is 2: must be above regime_change_spread_s (3),")
    (error,) = WorkloadSettings(burst_factor=0.5).errors()
    assert error.startswith("burst_factor is 0.5: must be at least 1")
    (error,) = WorkloadSettings(burst_s_last=50.0).errors()
    assert error == "burst_s_last is 50: must be at least 0.1, and it needs burst_count, which ends the bursts"
    (error,) = WorkloadSettings(publisher_broker_count=0).errors()
    assert error == "publisher_broker_count is 0: must be at least 1, or none for all brokers"
