"""Count how often a derived value is computed."""

import pytest

from regraft.overlay.derived_values import derived_value


def count_computations(monkeypatch: pytest.MonkeyPatch, value: derived_value[object]) -> list[object]:
    """Return a list to which every computation of the value adds the object that it is a value of."""
    computed: list[object] = []
    compute = value.func

    def counted(owner: object) -> object:
        computed.append(owner)
        return compute(owner)

    monkeypatch.setattr(value, "func", counted)
    return computed
