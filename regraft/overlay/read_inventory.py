"""Read an inventory from its JSON file, with an overlay of any kind, and name all that is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from regraft.overlay.inventory.inventory import REASON_LENGTH_MAX, Inventory, InventoryError
from regraft.overlay.inventory.inventory_checks import InventoryValues, value_errors
from regraft.overlay.inventory.inventory_fields import FieldReader
from regraft.overlay.known_kinds import read_configuration
from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.schemas.parse_text import parse_json

ERRORS_SHOWN = 5  # In a message, which may be a line of a log.


def load_inventory(path: Path) -> Inventory:
    """Read an inventory from JSON; raise InventoryError naming the file and all that is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise _unusable(str(path), ["it does not exist; `regraft inventory make` writes one"]) from error
    except OSError as error:
        raise _unusable(str(path), [f"it cannot be read ({error.strerror or error})"]) from error
    except UnicodeDecodeError as error:
        raise _unusable(str(path), [f"it is not text in UTF-8 (byte {error.start})"]) from error
    return parse_inventory(text, str(path))


def parse_inventory(text: str, source: str) -> Inventory:
    """Read an inventory from JSON text; raise InventoryError naming the source and all that is wrong with it."""
    try:
        reader = FieldReader(parse_json(text))
    except ValueError as error:
        raise _unusable(source, [f"it is not JSON ({error})"]) from error
    names = reader.names()
    brokers = names or ()
    degree_max, overlay = reader.whole("degree_max"), _overlay_of(brokers, reader) if names else None
    has_loads = names and reader.document.get("load_max_per_s") is not None
    values = InventoryValues(
        names,
        reader.vector("processing_cost", brokers) if names else None,
        reader.matrix("link_cost", brokers) if names else None,
        overlay,
        reader.vector("load_max_per_s", brokers) if has_loads else None,
        reader.places("positions", brokers) if names else None,
        reader.mapping("agents"),
        reader.prices(),
    )
    stays, errors = reader.truth("clients_stay"), reader.errors + value_errors(values)
    costs, links = values.processing_cost, values.link_cost
    if errors or costs is None or links is None or degree_max is None or overlay is None:
        raise _unusable(source, errors)
    return Inventory(
        brokers,
        costs,
        links,
        degree_max,
        overlay,
        values.load_max_per_s,
        values.positions,
        dict(values.agent_of),
        stays,
        values.prices,
    )


def _overlay_of(brokers: Sequence[str], reader: FieldReader) -> OverlayConfiguration | None:
    """Return the overlay of epoch 0, None if its fields are none of a known kind."""
    try:
        return read_configuration(brokers, reader.document) if reader.has_overlay() else None
    except ValueError as error:
        reader.errors.append(str(error)[:REASON_LENGTH_MAX])
    return None


def _unusable(source: str, errors: Sequence[str]) -> InventoryError:
    """Return the error of a source with these errors; its message has the first ones."""
    first = "; ".join(errors[:ERRORS_SHOWN])
    more = f"; and {len(errors) - ERRORS_SHOWN} more" if len(errors) > ERRORS_SHOWN else ""
    return InventoryError(f"{source} is not an inventory: {first[:REASON_LENGTH_MAX]}{more}", tuple(errors))
