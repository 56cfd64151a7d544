"""What an inventory is made from cannot be used."""

from collections.abc import Sequence

from regraft.infra.process.stack_error import StackError
from regraft.schemas.texts import ended, one_line

SHOWN_MAX = 20


class SourceError(StackError):
    """A file or a server does not give what an inventory needs; the message lists every error, one a line."""

    def __init__(self, errors: Sequence[str]) -> None:
        more = [f"... and {len(errors) - SHOWN_MAX} more."] if len(errors) > SHOWN_MAX else []
        shown = [ended(one_line(error)) for error in errors[:SHOWN_MAX]]
        super().__init__("\n".join([*shown, *more]))
        self.errors = tuple(errors)
