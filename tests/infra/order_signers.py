"""Keys that sign orders in tests, and a file that trusts them."""

from datetime import UTC, datetime
from pathlib import Path

from regraft.infra.orders.order_keys import SigningKey, create_signing_key
from regraft.schemas.order import OrderKind

TRUSTED_UNTIL = datetime(2100, 1, 1, tzinfo=UTC)


def trust(
    directory: Path, *names: str, until: datetime = TRUSTED_UNTIL, orders: tuple[OrderKind, ...] = ()
) -> tuple[Path, dict[str, SigningKey]]:
    """Create keys with these names; return a file that trusts them, and the keys."""
    keys = {name: create_signing_key(name, directory / f"{name}.key") for name in names}
    file = directory / "trusted.toml"
    file.write_text("\n".join(key.trusted_line(until, orders) for key in keys.values()) + "\n")
    return file, keys
