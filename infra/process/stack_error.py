"""The base classes of errors that users can fix; the message says in one sentence what is wrong and what to do.

A broken invariant is an ordinary exception instead.
"""


class StackError(RuntimeError):
    """Reports in one sentence what is wrong with the local stack, with its value, the limit and what to do."""


class CallError(StackError):
    """Reports that the call names something that does not exist or is not what it should be: exit code 2, not 1."""
