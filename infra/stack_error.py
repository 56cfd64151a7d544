"""The one family of errors by which infra tells a user, in one sentence, what is wrong and what to do.

Only faults that a person can mend belong here; a broken invariant stays an ordinary exception.
"""


class StackError(RuntimeError):
    """Say in one sentence what is wrong with the local stack, with its value, the limit and what to do."""
