"""The connector to an MQTT broker, as the settings describe it.

What it does belongs to :mod:`producers.nodes.mqtt.mqtt_connector`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from regraft.infra.process.find_extras import require_extras
from regraft.producers.connector_settings import ConnectorSettings
from regraft.producers.nodes.connectors.connector import Connector
from regraft.producers.nodes.connectors.connector_spec import ConnectorContext, ConnectorSpec
from regraft.producers.workloads.stock_settings import too_small

if TYPE_CHECKING:
    from regraft.producers.node_settings import NodeSettings


@dataclass(frozen=True)
class MqttSettings(ConnectorSettings):
    """Settings of a node next to an MQTT 5 broker."""

    filters: Annotated[
        tuple[str, ...],
        "topics, with + and #, that the node always requests, whether clients want them or not",
    ] = ()
    log_file: Annotated[
        Path | None,
        "Mosquitto's log file, to learn of subscriptions created while the node was away",
    ] = None
    session_s: Annotated[
        float,
        "how long the subscriptions of a client's session remain after it has left",
    ] = 3_600.0
    durable_session: Annotated[
        bool,
        "forward messages of QoS 1 and 2 from a session that the broker keeps for the node",
    ] = False

    def errors(self) -> list[str]:
        """Return what is wrong with the settings, one sentence each."""
        return too_small([("session_s", self.session_s, 0.0, "no session ends before its client has left")])


def _node_errors(node: NodeSettings, settings: MqttSettings) -> Iterator[str]:
    """Return an error for an interface, since a node asks none of an MQTT broker."""
    if node.connector_api is not None:
        yield "connector_api is given, but what MQTT clients want is in Mosquitto's log, or connectors.mqtt.filters"


def connect_mqtt(context: ConnectorContext, settings: MqttSettings) -> Connector:
    """Return the connector to an MQTT broker."""
    require_extras("A connector to an MQTT broker", "mqtt")
    from regraft.producers.nodes.mqtt.mqtt_connector import MqttConnector

    return MqttConnector(
        context.url,
        context.broker,
        context.user,
        context.password,
        filters=settings.filters,
        session_s=settings.session_s,
        is_durable=settings.durable_session,
        interest_file=context.state_file,
        log_file=settings.log_file,
        tls=context.tls,
        overlay=context.overlay,
    )


SPEC = ConnectorSpec(
    name="mqtt",
    secure_scheme="mqtts",
    settings=MqttSettings,
    connect=connect_mqtt,
    broker="an MQTT broker",
    form="mqtt://HOST:PORT",
    node_errors=_node_errors,
)
