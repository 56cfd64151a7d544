"""A setting that the door in use would ignore is refused at the start, with what to use instead."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from regraft.producers.door_faults import DOORS_OF, KIND_OF_SCHEME
from regraft.producers.node_settings import NodeSettings

PLAIN = NodeSettings("none:1", Path("inventory.json"), Path("status.json"), broker="b01")
GIVEN: dict[str, Any] = {
    "door_filters": ("a/#",), "door_exchange": "other", "door_log_file": Path("log"), "door_session_s": 5.0,
    "durable_stream": "ORDERS", "durable_session": True, "door_credentials_file": Path("user.creds"),
    "local_streams": ("ORDERS",),
}  # fmt: skip
DOORS = {
    "leaf": {"door": "nats://h:7422"},
    "client": {"door": "nats://h:4222", "door_api": "http://h:8222"},
    "mqtt": {"door": "mqtt://h:1883"},
    "amqp": {"door": "amqp://h:5672/"},
}
USED = {
    "leaf": {"durable_stream", "door_credentials_file", "local_streams"},
    "client": {"door_credentials_file", "local_streams"},
    "mqtt": {"door_filters", "door_log_file", "door_session_s", "durable_session"},
    "amqp": {"door_filters", "door_exchange", "durable_session"},
}


def faults(**given: Any) -> list[str]:
    return replace(PLAIN, **given).faults()


@pytest.mark.parametrize("door", DOORS)
def test_each_setting_of_another_door_is_refused_and_all_at_once(door: str) -> None:
    """None is ignored in silence; those of the door in use are accepted."""
    assert faults(**DOORS[door]) == []
    for name, value in GIVEN.items():
        found = faults(**DOORS[door], **{name: value})
        if name in USED[door]:
            assert found == []
        else:
            (fault,) = found
            assert fault.startswith(f"{name} is ")
            assert "which ignores it: " in fault
    assert len(faults(**DOORS[door], **GIVEN)) == len(GIVEN) - len(USED[door])


def test_every_setting_of_a_door_is_assigned_to_doors_or_for_all() -> None:
    """A new one must say where it applies."""
    for_all = {"door", "door_user", "door_password_file", "door_api", "door_api_user", "door_api_password_file"}
    for_tls = {"door_ca_file", "door_certificate_file", "door_key_file"}
    named = {field.name for field in fields(NodeSettings) if field.name.startswith(("door", "durable", "local"))}
    assert named == for_all | for_tls | set(DOORS_OF) == for_all | for_tls | set(GIVEN)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"door": "nats://h:1", "door_ca_file": Path("ca")}, "door_ca_file is ca, but nats:// has no TLS: use tls://"),
        ({"door": "mqtt://h:1", "door_ca_file": Path("ca")}, "has no TLS: use mqtts://"),
        ({"door": "http://h:1"}, "door is 'http://h:1': there are nats://HOST:PORT"),
        ({"door": "mqtt://h:99999"}, "it must name a host, and a port from 1 to 65535"),
        ({"door": "mqtt://"}, "it must name a host"),
        ({"door": "nats://[::1:4222"}, "door is 'nats://[::1:4222': it must name a host"),
        ({"door": "amqp://h", "door_api": "http://[h"}, "door_api is 'http://[h': it must be an address"),
        ({"door": "amqp://h", "door_api": "file:///etc/passwd"}, "door_api is 'file:///etc/passwd': it must be"),
        ({"door": "amqp://h", "door_api_user": "me"}, "door_api_user is given without door_api"),
        ({"door": "amqp://h", "door_api": "http://h", "door_api_password_file": Path("p")}, "without door_api_user"),
        ({"door": "mqtt://h", "door_password_file": Path("p")}, "door_password_file is given without door_user"),
        ({"listen": "h"}, "listen is 'h': it must be host:port"),
        ({"listen": "h:70000"}, "listen is 'h:70000'"),
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, Any], why: str) -> None:
    """The sentence names the setting, its value and the way out."""
    assert any(why in fault for fault in faults(**given)), faults(**given)


def test_without_a_door_nothing_about_doors_is_refused() -> None:
    """All stages share the settings, and only a node names its door."""
    assert faults(**GIVEN) == []
    assert set(KIND_OF_SCHEME) == {"nats", "tls", "mqtt", "mqtts", "amqp", "amqps"}
