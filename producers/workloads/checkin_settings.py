"""Settings of the check-in workload: one frozen value, checked as a whole before anything starts.

Reads neither files nor the environment; ``regraft`` fills it.
"""

from __future__ import annotations

from dataclasses import dataclass

USERS_SHIPPED = 1_225  # Users with shipped check-ins (data/SOURCES.md).
DAYS_SHIPPED = 56
CELLS_PER_SIDE_MAX = 99  # A topic names row and column with two digits.


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
    # Rows of cells of the city; each cell with check-ins is a topic.
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

    def errors(self) -> list[str]:
        """Return each error as one sentence with the value, the limit and what to do; empty if there is none."""
        errors = [
            f"{name} is {value}: must be from 1 to {CELLS_PER_SIDE_MAX}, because a topic gives row and column as two "
            "digits"
            for name, value in (("grid_rows", self.grid_rows), ("grid_columns", self.grid_columns))
            if not 1 <= value <= CELLS_PER_SIDE_MAX
        ]
        if not 1 <= self.user_count <= USERS_SHIPPED:
            errors.append(
                f"user_count is {self.user_count}: must be from 1 to {USERS_SHIPPED}, the number of users whose "
                "check-ins are shipped"
            )
        elif not 0 <= self.friend_count < self.user_count:
            errors.append(
                f"friend_count is {self.friend_count}: must be from 0 to {self.user_count - 1}, since user_count is "
                f"{self.user_count} and no user is a friend twice, or their own"
            )
        if not 0 < self.days_per_s <= DAYS_SHIPPED:
            errors.append(
                f"days_per_s is {self.days_per_s:g}: must be above 0 and at most {DAYS_SHIPPED}, the number of days "
                "shipped"
            )
        if not 0 < self.notifications_per_s <= 10_000:
            errors.append(
                f"notifications_per_s is {self.notifications_per_s:g}: must be above 0 and at most 10000 for all "
                "feeds together"
            )
        if self.linger_days is not None and not self.linger_days > 0:
            errors.append(f"linger_days is {self.linger_days:g}: must be above 0, or none for users who never leave")
        if not self.connect_spread_s >= 0:
            errors.append(f"connect_spread_s is {self.connect_spread_s:g}: must be at least 0; 0 connects all at once")
        return errors
