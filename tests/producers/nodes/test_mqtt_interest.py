"""What Mosquitto's log says of clients that leave, in the words of each version."""

from __future__ import annotations

from collections import Counter

import pytest

from regraft.producers.nodes.mqtt_interest import LOG_TOPIC, MqttInterest

V2_0 = ("Client {} disconnected.", "Client {} closed its connection.", "Client {} has exceeded timeout, disconnecting.")
V2_1 = (
    "Client {} [127.0.0.1:50123] disconnected.",
    "Client {} [::1:50123] disconnected: connection closed by client.",
    "Client {} [127.0.0.1:50123] disconnected: exceeded timeout.",
)


@pytest.mark.parametrize("name", ["sensor", "sensor one", "sensor [10.0.0.1:1]"])
@pytest.mark.parametrize("left", [*V2_0, *V2_1])
def test_interest_ends_when_a_client_without_session_leaves(left: str, name: str) -> None:
    """Mosquitto 2.1 adds the client's address; a name with spaces or brackets is still that client's."""
    wanted: dict[str, bool] = {}
    interest = MqttInterest(wanted.__setitem__, "regraft-b01", 3_600.0, Counter())
    connected = "New client connected from 127.0.0.1:50123 as {} (p2, c1, k60)."
    for other in ("sensor", name):
        interest.handle(f"{LOG_TOPIC}N", f"1795672537: {connected.format(other)}", 0.0)
    interest.handle(f"{LOG_TOPIC}M/subscribe", f"1795672537: {name} 1 a/b", 0.0)
    assert wanted == {"a.b": True}
    interest.handle(f"{LOG_TOPIC}N", f"1795672538: {left.format(name)}", 1.0)
    assert wanted == {"a.b": False}
    assert interest.known() == {}
