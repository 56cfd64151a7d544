"""The processes of the loop: each gets its settings, and only the secrets that it uses."""

import pytest

from regraft.settings.run_settings import load_settings
from regraft.stages.loop_services import ALERTS, CONTROLLER, DASHBOARD, EMULATOR, STREAMING, loop_service

SECRETS = {
    "redis": ("live-view-secret", {CONTROLLER, ALERTS, DASHBOARD}),
    "targets": ("target-secret", {ALERTS}),
    "webhooks": ("webhook-secret", {ALERTS}),
    "dashboard": ("dashboard-secret-of-32-characters", {DASHBOARD}),
}
GIVEN = {
    "redis": {"url": f"redis://:{SECRETS['redis'][0]}@127.0.0.1:1/0"},
    "alerts": {
        "targets": [f"mailtos://me:{SECRETS['targets'][0]}@example.org"],
        "webhooks": [f"https://example.org/{SECRETS['webhooks'][0]}"],
    },
    "dashboard": {"secret": SECRETS["dashboard"][0]},
}


@pytest.mark.parametrize("name", [EMULATOR, STREAMING, CONTROLLER, ALERTS, DASHBOARD])
def test_a_child_gets_only_the_secrets_that_it_uses(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is neither given nor inherits any other; the rest of its settings is its parent's."""
    monkeypatch.setenv("REGRAFT_REDIS_URL", GIVEN["redis"]["url"])  # type: ignore[arg-type]
    settings = load_settings(GIVEN)
    environment = loop_service(name, settings).environment
    for secret, users in SECRETS.values():
        assert any(secret in value for value in environment.values()) == (name in users), secret
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    child = load_settings()
    assert child.kafka == settings.kafka
    assert child.streaming == settings.streaming
    assert (child.redis == settings.redis) == (name in SECRETS["redis"][1])
    assert not [secret for secret, users in SECRETS.values() if name not in users and secret in str(child.given)]


def test_a_password_in_a_variable_reaches_only_stages_that_log_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulator does not use the live view, so the variable with its password is empty there."""
    monkeypatch.setenv("VIEW_PASSWORD", "hunter2")
    settings = load_settings({"redis": {"url": "redis://valkey", "security": {"password_file": "env:VIEW_PASSWORD"}}})
    assert loop_service(EMULATOR, settings).environment["VIEW_PASSWORD"] == ""
    assert "VIEW_PASSWORD" not in loop_service(CONTROLLER, settings).environment
