"""Every setting that names a file with a secret is found, and the settings' own file if it holds one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regraft.settings.run_settings import load_settings, section_models
from regraft.settings.settings_model import SettingsModel, named_secret_files

PUBLIC = {  # Files that hold no secret.
    "ca_file", "certificate_file", "trusted_keys_file", "revoked_file", "rules_file", "connector_ca_file",
    "connector_certificate_file",
}  # fmt: skip


def _files_of(model: SettingsModel) -> dict[str, Any]:
    """Return the model's settings about files, each with its own name as the value."""
    values: dict[str, Any] = {}
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, SettingsModel):
            values[name] = _files_of(value)
        elif name.endswith("_file"):
            values[name] = Path(name)
    return values


def test_every_setting_about_a_file_is_either_secret_or_listed_as_public() -> None:
    """A new one must be one of both."""
    given = {name: _files_of(model()) for name, model in section_models().items()}
    every = {str(leaf) for leaf in _leaves(given)}
    secret = {str(file) for file in named_secret_files(given)}
    assert secret == every - PUBLIC
    assert {"password_file", "key_file", "key_password_file", "secret_file", "connector_password_file"} <= secret


def _leaves(values: dict[str, Any]) -> list[Path]:
    return [leaf for value in values.values() for leaf in (_leaves(value) if isinstance(value, dict) else [value])]


@pytest.mark.parametrize(
    ("text", "is_named"),
    [
        ('[redis]\nurl = "redis://:secret@127.0.0.1:1/0"\n', True),
        ('[dashboard]\nsecret = "a-secret-of-at-least-32-characters"\n', True),
        ("[run]\nseed = 2\n", False),
    ],
)
def test_a_file_of_settings_that_holds_a_secret_is_one(tmp_path: Path, text: str, is_named: bool) -> None:
    file = tmp_path / "regraft.toml"
    file.write_text(text)
    assert load_settings({}, file).secret_files == ((file,) if is_named else ())


def test_a_variable_is_no_file() -> None:
    assert list(named_secret_files({"a": {"password_file": Path("env:NAME"), "key_file": None}})) == []
