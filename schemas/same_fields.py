"""Make a record from another value that has fields of the same names."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

Record = TypeVar("Record", bound=msgspec.Struct)


def like(kind: type[Record], source: object, **given: Any) -> Record:
    """Return a record with the ``given`` values, and the source's for all other fields.

    Raises AttributeError if the source lacks one of them.
    """
    same = {name: getattr(source, name) for name in kind.__struct_fields__ if name not in given}
    return kind(**given, **same)
