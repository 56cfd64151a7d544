"""A setting that the connector in use would ignore is refused at the start, with what to use instead."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from regraft.producers.connector_faults import CONNECTORS_OF, KIND_OF_SCHEME
from regraft.producers.node_settings import NodeSettings

PLAIN = NodeSettings("none:1", Path("inventory.json"), Path("status.json"), broker="b01")
GIVEN: dict[str, Any] = {
    "connector_filters": ("a/#",), "connector_exchange": "other", "connector_log_file": Path("log"),
    "connector_session_s": 5.0,
    "durable_stream": "ORDERS", "durable_session": True, "connector_credentials_file": Path("user.creds"),
    "local_streams": ("ORDERS",),
}  # fmt: skip
CONNECTORS = {
    "leaf": {"connector": "nats://h:7422"},
    "client": {"connector": "nats://h:4222", "connector_api": "http://h:8222"},
    "mqtt": {"connector": "mqtt://h:1883"},
    "amqp": {"connector": "amqp://h:5672/"},
}
USED = {
    "leaf": {"durable_stream", "connector_credentials_file", "local_streams"},
    "client": {"connector_credentials_file", "local_streams"},
    "mqtt": {"connector_filters", "connector_log_file", "connector_session_s", "durable_session"},
    "amqp": {"connector_filters", "connector_exchange", "durable_session"},
}


def faults(**given: Any) -> list[str]:
    return replace(PLAIN, **given).faults()


@pytest.mark.parametrize("connector", CONNECTORS)
def test_each_setting_of_another_connector_is_refused_and_all_at_once(connector: str) -> None:
    """None is ignored in silence; those of the connector in use are accepted."""
    assert faults(**CONNECTORS[connector]) == []
    for name, value in GIVEN.items():
        found = faults(**CONNECTORS[connector], **{name: value})
        if name in USED[connector]:
            assert found == []
        else:
            (fault,) = found
            assert fault.startswith(f"{name} is ")
            assert "which ignores it: " in fault
    assert len(faults(**CONNECTORS[connector], **GIVEN)) == len(GIVEN) - len(USED[connector])


def test_every_setting_of_a_connector_is_assigned_to_connectors_or_for_all() -> None:
    """A new one must say where it applies."""
    for_all = {
        "connector",
        "connector_user",
        "connector_password_file",
        "connector_api",
        "connector_api_user",
        "connector_api_password_file",
    }
    for_tls = {"connector_ca_file", "connector_certificate_file", "connector_key_file"}
    named = {field.name for field in fields(NodeSettings) if field.name.startswith(("connector", "durable", "local"))}
    assert named == for_all | for_tls | set(CONNECTORS_OF) == for_all | for_tls | set(GIVEN)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            {"connector": "nats://h:1", "connector_ca_file": Path("ca")},
            "connector_ca_file is ca, but nats:// has no TLS: use tls://",
        ),
        ({"connector": "mqtt://h:1", "connector_ca_file": Path("ca")}, "has no TLS: use mqtts://"),
        ({"connector": "http://h:1"}, "connector is 'http://h:1': there are nats://HOST:PORT"),
        ({"connector": "mqtt://h:99999"}, "it must name a host, and a port from 1 to 65535"),
        ({"connector": "mqtt://"}, "it must name a host"),
        ({"connector": "nats://[::1:4222"}, "connector is 'nats://[::1:4222': it must name a host"),
        (
            {"connector": "amqp://h", "connector_api": "http://[h"},
            "connector_api is 'http://[h': it must be an address",
        ),
        (
            {"connector": "amqp://h", "connector_api": "file:///etc/passwd"},
            "connector_api is 'file:///etc/passwd': it must be",
        ),
        ({"connector": "amqp://h", "connector_api_user": "me"}, "connector_api_user is given without connector_api"),
        (
            {"connector": "amqp://h", "connector_api": "http://h", "connector_api_password_file": Path("p")},
            "without connector_api_user",
        ),
        (
            {"connector": "mqtt://h", "connector_password_file": Path("p")},
            "connector_password_file is given without connector_user",
        ),
        ({"listen": "h"}, "listen is 'h': it must be host:port"),
        ({"listen": "h:70000"}, "listen is 'h:70000'"),
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, Any], why: str) -> None:
    """The sentence names the setting, its value and the way out."""
    assert any(why in fault for fault in faults(**given)), faults(**given)


def test_without_a_connector_nothing_about_connectors_is_refused() -> None:
    """All stages share the settings, and only a node names its connector."""
    assert faults(**GIVEN) == []
    assert set(KIND_OF_SCHEME) == {"nats", "tls", "mqtt", "mqtts", "amqp", "amqps"}
