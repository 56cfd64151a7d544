"""The fields of an inventory's JSON, as a JSON schema for editors and other programs.

The reader (:mod:`overlay.inventory`) checks more than a schema can: sums of fields, symmetry, one tree.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from regraft.schemas.bounds import NAME_LENGTH_MAX
from regraft.schemas.texts import name_near
from regraft.schemas.topics import AGENT_PATTERN

SCHEMA_FIELD = "$schema"  # Editors read it to find the schema; an inventory may have it.
REQUIRED = ("brokers", "processing_cost", "link_cost", "degree_max")
OVERLAYS = (("links",), ("ring",), ("regions", "region_links"))

_NAME: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": NAME_LENGTH_MAX}
_COST: dict[str, Any] = {"type": "number", "minimum": 0}


def _list(items: dict[str, Any], **bounds: int) -> dict[str, Any]:
    return {"type": "array", "items": items, **bounds}


PRICES: dict[str, dict[str, Any]] = {
    "currency": {"type": "string", "minLength": 1, "description": "Name of the currency, such as USD."},
    "link_per_gb": _list(_list(_COST)) | {"description": "Price per GB between each two brokers, the same both ways."},
    "access_per_gb": _list(_COST) | {"description": "Price per GB from each broker to its subscribers."},
    "message_bytes": {"type": "number", "exclusiveMinimum": 0, "description": "Mean size of a notification on a link."},
    "delay_price": _COST
    | {"description": "What a second of delay costs, in millionths of the currency; 0 if left out."},
}
FIELDS: dict[str, dict[str, Any]] = {
    "brokers": _list(_NAME, minItems=2)
    | {"description": "Names of the brokers, sorted, each once.", "uniqueItems": True},
    "processing_cost": _list(_COST) | {"description": "Cost of a notification in each broker, in the brokers' order."},
    "link_cost": _list(_list(_COST))
    | {"description": "Cost of a notification on each possible link, usually the one-way delay in ms; symmetric."},
    "degree_max": {"type": "integer", "minimum": 1, "description": "Maximum number of links per broker."},
    "links": _list(_list(_NAME, minItems=2, maxItems=2)) | {"description": "Links of the initial overlay, one tree."},
    "ring": {"type": "object", "description": "IDs of a ring (`bits`, `ids`), in place of links."},
    "regions": _list(_list(_NAME)) | {"description": "Brokers of a structured cyclic overlay, in place of links."},
    "region_links": _list(_list({"type": "integer"})) | {"description": "Pairs of regions that are linked."},
    "load_max_per_s": {
        "type": ["array", "null"],
        "items": _COST | {"exclusiveMinimum": 0},
        "description": "Most notifications per second that may pass each broker.",
    },
    "positions": {
        "type": ["array", "null"],
        "items": _list({"type": "number"}, minItems=2, maxItems=2),
        "description": "Longitude and latitude of each broker, or x and y.",
    },
    "agents": {
        "type": "object",
        "additionalProperties": {"type": "string", "pattern": f"^(?:{AGENT_PATTERN.pattern})$"},
        "description": "Agent of each broker that has one: its topics in Kafka carry that name.",
    },
    "clients_stay": {
        "type": "boolean",
        "description": "True if clients without an agent stay where they connect, as next to nodes.",
    },
    "prices": {
        "type": ["object", "null"],
        "properties": PRICES,
        "required": [name for name in PRICES if name != "delay_price"],
        "additionalProperties": False,
        "description": "What traffic costs in money.",
    },
}


def inventory_schema() -> dict[str, Any]:
    """Return the JSON schema of an inventory."""
    return {
        SCHEMA_FIELD: "https://json-schema.org/draft/2020-12/schema",
        "title": "Regraft inventory",
        "description": "Brokers, the costs of all possible links, and the initial overlay.",
        "type": "object",
        "properties": {SCHEMA_FIELD: {"type": "string"}, **FIELDS},
        "required": list(REQUIRED),
        "anyOf": [{"required": list(fields)} for fields in OVERLAYS],
        "additionalProperties": False,
    }


def unknown_fields(names: Collection[str], known: Collection[str], within: str = "", what: str = "field") -> list[str]:
    """Return one sentence for each field that is not known, with the nearest known one."""
    sentences = []
    for name in names:
        if name not in known:
            shown = name if len(name) <= NAME_LENGTH_MAX else f"{name[:NAME_LENGTH_MAX]}..."
            way_out = name_near(name, known, f"known are {', '.join(known)}")
            sentences.append(f"{within}{shown} is not a {what}: {way_out}")
    return sentences
