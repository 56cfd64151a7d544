"""The one family of errors with which infra reports to a user, in one sentence, what is wrong and what to do.

Only faults that a user can fix belong here; a broken invariant stays an ordinary exception.
"""


class StackError(RuntimeError):
    """Reports in one sentence what is wrong with the local stack, with its value, the limit and what to do."""
