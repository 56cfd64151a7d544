"""The ``.avsc`` files: readable across versions, and the same fields as the Python records."""

import copy
import json
import types
import typing
from enum import EnumMeta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.schema import parse

import regraft.schemas.alert
import regraft.schemas.announcement
import regraft.schemas.audit
import regraft.schemas.client
import regraft.schemas.command
import regraft.schemas.dead_letter
import regraft.schemas.event
import regraft.schemas.leader
import regraft.schemas.member
import regraft.schemas.order
import regraft.schemas.plan
import regraft.schemas.sample_request
import regraft.schemas.state
import regraft.schemas.telemetry
from regraft.schemas.registry import AVSC_DIRECTORY, SCHEMAS, schema_by_id, schema_ids_of
from regraft.schemas.topics import TOPICS

MODULES = (
    regraft.schemas.alert,
    regraft.schemas.announcement,
    regraft.schemas.audit,
    regraft.schemas.client,
    regraft.schemas.command,
    regraft.schemas.dead_letter,
    regraft.schemas.event,
    regraft.schemas.leader,
    regraft.schemas.member,
    regraft.schemas.order,
    regraft.schemas.plan,
    regraft.schemas.sample_request,
    regraft.schemas.state,
    regraft.schemas.telemetry,
)
STRUCTS: dict[str, type[msgspec.Struct]] = {
    name: found
    for module in MODULES
    for name, found in vars(module).items()
    if isinstance(found, type) and issubclass(found, msgspec.Struct) and found is not msgspec.Struct
}
RECORDS = sorted({schema_by_id(schema_id).record for schema_id in SCHEMAS})
PRIMITIVES: dict[object, set[str]] = {
    int: {"int", "long"},
    str: {"string"},
    float: {"double"},
    bytes: {"bytes"},
    bool: {"boolean"},
}


def reader_accepts(reader: str, writer: str) -> bool:
    result = ReaderWriterCompatibilityChecker().get_compatibility(parse(reader), parse(writer))
    return result.compatibility is SchemaCompatibilityType.compatible


@pytest.mark.parametrize("record", RECORDS)
def test_every_version_reads_all_earlier_ones(record: str) -> None:
    """A record written by any earlier Regraft stays readable."""
    versions = [schema_by_id(schema_id) for schema_id in schema_ids_of(record)]
    for place, reader in enumerate(versions):
        for writer in versions[: place + 1]:
            assert reader_accepts(reader.text, writer.text), f"{record} v{reader.version} cannot read v{writer.version}"


@pytest.mark.parametrize("record", RECORDS)
def test_the_check_catches_a_field_without_default_and_a_changed_type(record: str) -> None:
    """The checker refuses a new field that old records lack, and a field whose type was changed."""
    text = schema_by_id(schema_ids_of(record)[-1]).text
    added, changed = json.loads(text), json.loads(text)
    added["fields"].append({"name": "added_later", "type": "long"})
    changed["fields"][0]["type"] = "boolean"
    with_default = copy.deepcopy(added)
    with_default["fields"][-1]["default"] = 0
    assert not reader_accepts(json.dumps(added), text)
    assert not reader_accepts(json.dumps(changed), text)
    assert reader_accepts(json.dumps(with_default), text)


def test_each_file_has_one_id() -> None:
    """Every schema file has exactly one id, and the last digits of the id are the version."""
    assert sorted(SCHEMAS.values()) == sorted(path.stem for path in Path(AVSC_DIRECTORY).glob("*.avsc"))
    for schema_id in SCHEMAS:
        assert schema_by_id(schema_id).version == schema_id % 100


def test_every_topic_carries_a_known_record() -> None:
    """The record of every topic has a schema and a Python type."""
    for topic in TOPICS:
        assert schema_ids_of(topic.record)
        assert topic.record in STRUCTS


@pytest.mark.parametrize("record", RECORDS)
def test_record_and_schema_have_the_same_fields(record: str) -> None:
    """The newest schema and the Python record agree in order, names and types of fields, and in what may be absent."""
    document = json.loads(schema_by_id(schema_ids_of(record)[-1]).text)
    check_record(document, STRUCTS[record], {})


def check_record(document: dict[str, Any], struct: type[msgspec.Struct], named: dict[str, Any]) -> None:
    assert document["name"] == struct.__name__
    named[document["name"]] = document
    hints = typing.get_type_hints(struct)
    assert [field["name"] for field in document["fields"]] == list(struct.__struct_fields__)
    for field in document["fields"]:
        check_type(field["type"], hints[field["name"]], named, f"{struct.__name__}.{field['name']}")


def check_type(avro: Any, python: Any, named: dict[str, Any], where: str) -> None:
    origin, arguments = typing.get_origin(python), typing.get_args(python)
    if origin in (types.UnionType, typing.Union):
        assert isinstance(avro, list), where
        assert avro[0] == "null", where
        check_type(avro[1], next(kind for kind in arguments if kind is not type(None)), named, where)
    elif origin is tuple:
        assert avro["type"] == "array", where
        item = avro["items"]
        for argument in {kind for kind in arguments if kind is not Ellipsis}:
            check_type(item, argument, named, where)
    elif origin is dict:
        assert avro["type"] == "map", where
        check_type(avro["values"], arguments[1], named, where)
    elif isinstance(python, EnumMeta):
        assert avro == "string", where
    elif isinstance(python, type) and issubclass(python, msgspec.Struct):
        document = named[avro.rsplit(".", 1)[-1]] if isinstance(avro, str) else avro
        check_record(document, python, named)
    else:
        assert avro in PRIMITIVES[python], f"{where}: {avro} for {python}"
