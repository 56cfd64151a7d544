"""Read what a provider charges for traffic: a table that the operator writes from its price list.

In: a CSV of from, to and price_per_gb, in which ``clients`` stands for subscribers. Out: a Tariff.
"""

from __future__ import annotations

from pathlib import Path

from regraft.inventories.build_inventory import Tariff
from regraft.inventories.read_tables import Row, read_table

CLIENTS = "clients"


def read_prices(file: Path, currency: str, message_bytes: float) -> Tariff:
    """Return the prices of a table. Raises SourceError."""
    tariff = Tariff(currency, message_bytes, {}, {})

    def take(row: Row) -> None:
        source, target, price = row.name("from"), row.name("to"), row.number("price_per_gb")
        if price is None:
            row.faults.append(f"{row.place}: there is no price_per_gb from {source} to {target}")
        elif target == CLIENTS:
            tariff.access_per_gb[source] = price
        else:
            tariff.link_per_gb[source, target] = price

    read_table(file, ("from", "to", "price_per_gb"), (), take)
    return tariff
