"""The Poisson model: counts, times, patterns, the effect of a change."""

import numpy as np
import pytest

from regraft_lab.dynatops.poisson_workload import PATTERNS, Pattern, PoissonSettings, draw_poisson_changes
from regraft_lab.dynatops.user_changes import UserChanges

SEED = 11
USERS = 4_000


def _drawn(pattern: Pattern, **others: object) -> UserChanges:
    settings = PoissonSettings(**({"pattern": pattern, "user_count": USERS} | others))  # type: ignore[arg-type]
    return draw_poisson_changes(settings, np.random.default_rng(SEED))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_users_always_have_five_topics(pattern: Pattern) -> None:
    """At the start and after every change."""
    changes = _drawn(pattern)
    assert changes.user_count == USERS
    assert (np.diff(changes.starts) == 5).all()
    assert (np.diff(changes.new_starts) == 5).all()
    assert 0 <= changes.new_wanted.min() <= changes.new_wanted.max() < 1_000


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_change_replaces_one_topic(pattern: Pattern) -> None:
    """Four stay, one is dropped, one is added."""
    changes = _drawn(pattern)
    held = [set(topics.tolist()) for topics in changes.initial_topics()]
    for _, user, topics in changes.changes():
        wanted = set(topics.tolist())
        assert len(wanted & held[user]) == 4
        held[user] = wanted


@pytest.mark.parametrize("rate", [0.1, 0.025])
def test_changes_are_a_poisson_process(rate: float) -> None:
    """Their number, its variance between users and their times fit each user's rate, within 5 standard errors."""
    changes = _drawn("uniform", changes_per_user_h=rate)
    mean = rate * 100
    assert changes.change_count == pytest.approx(USERS * mean, abs=5 * np.sqrt(USERS * mean))
    of_user = np.bincount(changes.users, minlength=USERS)
    assert of_user.var() == pytest.approx(mean, abs=5 * mean * np.sqrt(2 / USERS) + 5 * np.sqrt(mean / USERS))
    assert (np.diff(changes.times_h) >= 0).all()
    by_hour = np.bincount(changes.times_h.astype(int), minlength=100)
    assert len(by_hour) == 100
    assert by_hour.var() == pytest.approx(by_hour.mean(), rel=5 * np.sqrt(2 / 100))


def test_uniform_topics_are_equally_popular() -> None:
    """First topics and replacements alike: every topic's count is within 5 standard deviations."""
    changes = _drawn("uniform")
    for drawn in (changes.wanted, changes.new_wanted):
        counts = np.bincount(drawn, minlength=1_000)
        mean = len(drawn) / 1_000
        # Successive sets of a user overlap, so these counts vary five times as much as those of independent draws.
        spread = np.sqrt(mean) if drawn is changes.wanted else np.sqrt(5 * mean)
        assert abs(counts - mean).max() < 5 * spread


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5])
def test_zipf_popularity_falls_with_the_rank(exponent: float) -> None:
    """A user of one topic has the i-th with (i + 1)^-s, counted from 1, within 5 standard errors."""
    settings = PoissonSettings("zipf", user_count=100_000, topics_per_user=1, zipf_exponent=exponent)
    changes = draw_poisson_changes(settings, np.random.default_rng(SEED))
    shares = np.bincount(changes.wanted, minlength=1_000) / 100_000
    law = (np.arange(1, 1_001) + 1.0) ** -exponent
    law /= law.sum()
    assert (abs(shares - law) <= 5 * np.sqrt(law / 100_000)).all()


def test_zipf_topics_of_a_user_are_drawn_one_after_the_other() -> None:
    """Two of three topics: a pair has probability p_i p_j / (1 - p_i) + p_j p_i / (1 - p_j)."""
    settings = PoissonSettings("zipf", user_count=60_000, topics_per_user=2, topic_count=3)
    changes = draw_poisson_changes(settings, np.random.default_rng(SEED))
    law = np.array([1 / 2, 1 / 3, 1 / 4])
    law /= law.sum()
    pairs = changes.wanted.reshape(-1, 2)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        wanted = law[one] * law[other] * (1 / (1 - law[one]) + 1 / (1 - law[other]))
        assert (pairs == [one, other]).all(axis=1).mean() == pytest.approx(wanted, abs=5 * np.sqrt(0.25 / 60_000))


def test_multimodal_users_stay_in_their_mode() -> None:
    """All topics of a user, at all times, are of the same ten; modes are equally popular."""
    changes = _drawn("multimodal")
    modes = changes.wanted.reshape(-1, 5) // 10
    assert (modes == modes[:, :1]).all()
    assert (changes.new_wanted.reshape(-1, 5) // 10 == modes[changes.users]).all()
    counts = np.bincount(modes[:, 0], minlength=100)
    assert abs(counts - USERS / 100).max() < 5 * np.sqrt(USERS / 100)


def test_a_redrawn_mode_is_another_one() -> None:
    """Each change takes the user to five topics of another mode."""
    changes = _drawn("multimodal", redraws_mode=True)
    now = changes.wanted.reshape(-1, 5)[:, 0] // 10
    for _, user, topics in changes.changes():
        modes = set((topics // 10).tolist())
        assert len(modes) == 1
        assert modes != {int(now[user])}
        now[user] = modes.pop()


def test_the_same_seed_gives_the_same_users() -> None:
    """Figures are reproducible."""
    first, second = _drawn("zipf"), _drawn("zipf")
    assert (first.new_wanted == second.new_wanted).all()
    assert (first.times_h == second.times_h).all()


def test_a_model_without_changes_has_none() -> None:
    """Rate 0."""
    assert _drawn("uniform", changes_per_user_h=0.0).change_count == 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"pattern": "normal"}, "uniform, zipf, multimodal"),
        ({"topics_per_user": 10}, "10 topics"),
        ({"mode_count": 7}, "equally large"),
        ({"pattern": "zipf", "redraws_mode": True}, "redrawn"),
    ],
)
def test_invalid_settings_report_why(settings: dict[str, object], words: str) -> None:
    """The message names what to change."""
    with pytest.raises(ValueError, match=words):
        PoissonSettings(**settings)  # type: ignore[arg-type]
