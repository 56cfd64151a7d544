"""The base class of errors that users can fix; the message says in one sentence what is wrong and what to do.

A broken invariant is an ordinary exception instead.
"""


class StackError(RuntimeError):
    """Reports in one sentence what is wrong with the local stack, with its value, the limit and what to do."""
