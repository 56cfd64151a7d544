"""What an inventory is made from cannot be used."""

from collections.abc import Sequence

from regraft.infra.process.stack_error import StackError

SHOWN_MAX = 20


class SourceError(StackError):
    """A file or a server does not give what an inventory needs; the message lists every fault, one a line."""

    def __init__(self, faults: Sequence[str]) -> None:
        more = [f"... and {len(faults) - SHOWN_MAX} more."] if len(faults) > SHOWN_MAX else []
        shown = [fault if fault.endswith("?") else f"{fault}." for fault in faults[:SHOWN_MAX]]
        super().__init__("\n".join([*shown, *more]))
        self.faults = tuple(faults)
