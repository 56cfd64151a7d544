"""Settings of a node: one frozen value, checked as a whole before anything starts.

Reads neither files nor the environment; ``regraft`` fills it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.process.serve_metrics import port_errors
from regraft.producers.connector_settings import ConnectorSettings
from regraft.producers.reporting_settings import ReportingSettings
from regraft.schemas.safe_names import safe_name

PORT_MAX = 65_535
GROUP_LENGTH_MAX = 60  # Of its form in a subscription's name, where most bytes but letters take three characters.


@dataclass(frozen=True, slots=True)
class NodeSettings(ReportingSettings):
    """All settings of one node: which broker it is, the real broker next to it, and where other nodes listen."""

    # Where its state is written each second.
    status_file: Path
    broker: Annotated[str | None, "this node's broker in the inventory"] = None
    connector: Annotated[
        str | None,
        "the real broker: nats://HOST:PORT of a NATS server's leaf port, mqtt://HOST:PORT or "
        "amqp://HOST:PORT/VHOST; with TLS tls, mqtts, amqps; commas separate servers of a cluster",
    ] = None
    connector_user: Annotated[str | None, "user at the real broker; none for no login"] = None
    connector_password_file: Annotated[Path | None, "file with its password"] = None
    connector_ca_file: Annotated[
        Path | None,
        "CAs (PEM) of the real broker's certificate; none for the system's",
    ] = None
    connector_certificate_file: Annotated[
        Path | None,
        "the node's certificate (PEM) for the real broker",
    ] = None
    connector_key_file: Annotated[Path | None, "private key of that certificate"] = None
    connector_api: Annotated[
        str | None,
        "RabbitMQ's management interface, such as http://127.0.0.1:15672",
    ] = None
    connector_api_user: Annotated[
        str | None,
        "user at that interface; none for connector_user",
    ] = None
    connector_api_password_file: Annotated[
        Path | None,
        "file with that user's password or key's secret",
    ] = None
    groups_once: Annotated[
        tuple[str, ...],
        "queue groups (NATS), share groups (MQTT) and queues (RabbitMQ) that handle each message once in the "
        "whole overlay, the same at all nodes",
    ] = ()
    peers_path: Annotated[
        Path | None,
        'JSON file with the addresses of all nodes, {"b01": "10.0.0.1:7411", ...}; none for peers.json next '
        "to the inventory",
    ] = None
    listen: Annotated[
        str | None,
        "host:port to listen on; none for the address that other nodes call",
    ] = None
    ca_file: Annotated[
        Path | None,
        "CAs (PEM) of other nodes' certificates, for mutual TLS; none for unencrypted links",
    ] = None
    certificate_file: Annotated[
        Path | None,
        "this node's certificate (PEM) for other nodes, with the broker's name as a DNS name",
    ] = None
    key_file: Annotated[Path | None, "private key of that certificate"] = None
    # How much a peer may leave unacknowledged before notifications to it are dropped and counted.
    link_bytes_max: int = 64 << 20
    # Time without input after which a link is reopened.
    link_silence_ms_max: float = 5_000.0
    # How many telemetry and result records may wait.
    kafka_buffer_records_max: int = 100_000
    # The settings of each kind of connector, by its name; one that is missing has its defaults.
    connectors: Mapping[str, ConnectorSettings] = field(default_factory=dict)

    @property
    def kafka(self) -> KafkaAccess:
        """How the node reaches Kafka."""
        return KafkaAccess(self.bootstrap, f"regraft-node-{self.broker or 'none'}", self.security)

    @property
    def _file_name(self) -> str:
        return f"node-{safe_name(self.broker or 'none')}"

    @property
    def own_status_file(self) -> Path:
        """The status file of this broker's node: several nodes may share a directory."""
        return self.status_file.with_name(f"{self._file_name}.json")

    @property
    def life_file(self) -> Path:
        """The file that marks that this node has begun before."""
        return self.status_file.with_name(f"{self._file_name}.life")

    @property
    def interest_file(self) -> Path:
        """The file that keeps what clients of an MQTT broker want, for the node's next incarnation."""
        return self.status_file.with_name(f"{self._file_name}.interest.json")

    @property
    def peers_file(self) -> Path:
        """The file with the addresses of the nodes."""
        return self.peers_path or self.inventory_path.with_name("peers.json")

    def errors(self) -> list[str]:
        """Return every error as one sentence with the value, the limit and what to do; empty if there is none."""
        errors = []
        files = (self.ca_file, self.certificate_file, self.key_file)
        if any(files) and not all(files):
            errors.append("ca_file, certificate_file and key_file go together: mutual TLS needs all three")
        if bool(self.connector_certificate_file) != bool(self.connector_key_file):
            errors.append("connector_certificate_file and connector_key_file go together: give both or neither")
        for name in ("connector", "connector_api"):
            if "@" in (getattr(self, name) or ""):
                errors.append(
                    f"{name} holds a login: use {name}_user and {name}_password_file instead, so that no settings "
                    "contain it"
                )
        for group in self.groups_once:
            if not group or not group.isprintable() or len(quote(group, safe="")) > GROUP_LENGTH_MAX:
                errors.append(
                    f"groups_once has {group!r}: a group has 1 to {GROUP_LENGTH_MAX} printable characters, as in a URL"
                )
        if self.listen is not None and not _is_address(self.listen):
            errors.append(f"listen is {self.listen!r}: it must be host:port with a port from 1 to {PORT_MAX}")
        return errors + port_errors(self.metrics_port)


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and 0 < int(port) <= PORT_MAX
