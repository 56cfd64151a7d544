"""The page about security matches the table of topics."""

from pathlib import Path

from regraft.infra.orders.judge_orders import ORDER_AGE_MS_MAX, ORDER_AHEAD_MS_MAX
from regraft.schemas.topics import AUDIT, NAMES_OF, ORDERS, TOPICS, Role
from regraft.schemas.units import DAY_MS

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
BEGIN, END = "<!-- drawn from schemas/topics.py -->", "<!-- end of what is drawn -->"


def test_the_page_shows_who_uses_which_topic() -> None:
    """After a change of the table, copy what this prints between the marks of the page."""
    rows = [
        f"| `NAMESPACE.{topic.suffix}` | {', '.join(topic.writers)} | {', '.join(topic.readers)} |" for topic in TOPICS
    ]
    table = "\n".join(["| topic | written by | read by |", "| --- | --- | --- |", *rows])
    print(table)  # noqa: T201
    assert PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0].strip() == table


def test_the_page_has_the_bounds_of_the_code() -> None:
    """Minutes and days that an operator relies on."""
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"more than {ORDER_AGE_MS_MAX // 60_000} minutes after it was signed" in page
    assert f"(or {ORDER_AHEAD_MS_MAX // 60_000} minute before" in page
    assert f"not before {ORDERS.compaction_lag_ms // DAY_MS} days" in page
    assert AUDIT.retention_ms is not None
    assert f"for {AUDIT.retention_ms // DAY_MS} days" in page
    assert all(name.replace("{namespace}", "NAMESPACE") in page for name in NAMES_OF[Role.ALERTS].transactions)
