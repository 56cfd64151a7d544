"""Settings of the check-in workload: one frozen value, checked as a whole before anything starts.

Reads neither files nor the environment; ``regraft`` fills it.
"""

from __future__ import annotations

from dataclasses import dataclass

USERS_SHIPPED = 1_225  # Users with shipped check-ins (data/SOURCES.md).


@dataclass(frozen=True, slots=True)
class CheckinSettings:
    """Who moves how fast over which grid, and how much is published there."""

    # Mobile users, drawn from those with shipped check-ins: all of them, whatever the number of brokers.
    user_count: int = USERS_SHIPPED
    # Other users whose cells each user follows, four as in Zhao13.
    friend_count: int = 4
    # Days of check-ins in one second of the run: a user stays in a cell for about 25 s, long enough for a plan to pay,
    # and the shipped days last six minutes, after which they repeat.
    days_per_s: float = 0.15
    # Rows of cells of the city, at most 99; each cell with check-ins is a topic.
    grid_rows: int = 12
    # Columns of cells of the city.
    grid_columns: int = 10
    # What all feeds together publish on average, each in proportion to its cell's check-ins: three quarters of what
    # the demo's quotes are.
    notifications_per_s: float = 150.0
    # How long a user is connected before and after each of its check-ins, in days of check-ins; none for always.
    linger_days: float | None = 14.0
    # Time over which the initial users connect.
    connect_spread_s: float = 5.0
