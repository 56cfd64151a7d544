"""Settings of a node: one frozen value, checked as a whole before anything starts.

Reads neither files nor the environment; ``regraft`` fills it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from urllib.parse import quote

from regraft.infra.kafka.kafka_access import KafkaAccess, KafkaSecurity
from regraft.infra.process.serve_metrics import port_faults
from regraft.producers.connector_faults import connector_faults, listen_faults
from regraft.producers.workloads.stock_settings import too_small
from regraft.schemas.safe_names import safe_name
from regraft.schemas.sampled_blocks import Sampling, sampling_faults
from regraft.schemas.topics import DEFAULT_NAMESPACE
from regraft.schemas.wire_grammar import ANY

GROUP_LENGTH_MAX = 60  # Of its form in a subscription's name, where most bytes but letters take three characters.


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """All settings of one node: which broker it is, the real broker next to it, and where other nodes listen.

    ``bootstrap``: Kafka servers as host:port. ``inventory_path``: the brokers and costs, as JSON, the same for all
    nodes. ``status_file``: where its state is written each second. ``namespace``: prefix of the topic names.
    ``broker``: which broker of the inventory this node is; `regraft node --broker` gives it.

    ``connector``: the real broker next to it, as nats://HOST:PORT of the leaf port of a NATS server, mqtt://HOST:PORT
    of an MQTT 5 broker or amqp://HOST:PORT/VHOST of a RabbitMQ; tls, mqtts and amqps are the same with TLS; `regraft
    node --connector` gives it; several servers of one cluster are separated by commas. ``connector_user``,
    ``connector_password_file``: the login at the real broker, and the file that holds the password, or without a user
    the token of a NATS server's client port; none for no login. ``connector_credentials_file``: for a NATS server, a
    .creds file (JWT and seed of a user) or a file with the seed of a user's nkey. ``connector_ca_file``: the CAs whose
    certificates the real broker may have, as PEM; none accepts those the system trusts. ``connector_certificate_file``,
    ``connector_key_file``: the node's client certificate for the real broker, and its key; none for no certificate.

    ``connector_filters``: topics, with + and #, that the node always requests from the others, for MQTT brokers and
    RabbitMQ: if nothing reports what clients want, and for retained messages that every broker should have.
    ``connector_exchange``: the topic exchange of a RabbitMQ that takes part. ``connector_api``: for a RabbitMQ, the
    address of its management interface, such as http://127.0.0.1:15672, which lists existing bindings; none learns only
    of later bindings; those of several servers of one cluster are separated by commas, for an EMQX too; for a NATS
    server, the address of its monitoring port, and the connector is then its client port, for servers without a leaf
    port; for an EMQX, the address of its REST interface, such as http://127.0.0.1:18083, which lists what clients want.
    ``connector_api_user``, ``connector_api_password_file``: the login at the management or REST interface, and the file
    that holds the password: for an EMQX an API key and its secret; with none, a RabbitMQ is queried as the connector's
    user, others without a login.

    ``connector_log_file``: Mosquitto's log file, if the node may read it, so that it learns of subscriptions made while
    it was away; with none, it learns of those only when clients subscribe again. ``connector_session_s``: how long the
    subscriptions of an MQTT client remain after it has left, because its session may continue. ``durable_stream``: a
    JetStream stream of the NATS server, whose messages are forwarded from there and acknowledged once neighbours have
    them; none forwards messages as they are published. ``durable_session``: whether messages are forwarded from a
    session that an MQTT broker keeps for the node (QoS 1 and 2), or from a quorum queue of a RabbitMQ, and acknowledged
    once neighbours have them. ``local_streams``: JetStream streams of the NATS server whose subjects are not requested
    from the others, * for all, so that they store only what is published next to this node; none stores what is
    published anywhere, since a stream wants its subjects as a client does.

    ``groups_once``: queue groups of NATS, shared subscriptions of MQTT (their group) and queues of RabbitMQ that handle
    each message once in the whole overlay, the same for all nodes; others do at each broker that has a member.

    ``peers_path``: where every node listens for links, as JSON: {"b01": "10.0.0.1:7411", ...}, the same for all nodes;
    none is peers.json next to the inventory. ``listen``: host:port to listen on if it differs from the address that
    other nodes call; none for the same. ``ca_file``, ``certificate_file``, ``key_file``: mutual TLS between nodes, as
    PEM; the certificate must contain the broker's name as a DNS name; none for unencrypted links.

    ``flush_ms``: pause between two telemetry batches. ``command_poll_ms``: pause between two polls for commands.
    ``link_bytes_max``: how much a peer may leave unacknowledged before notifications to it are dropped and counted.
    ``link_silence_ms_max``: time without input after which a link is reopened. ``kafka_outage_s_max``: how long
    telemetry and results wait while Kafka is unreachable. ``kafka_buffer_records_max``: how many telemetry and result
    records may wait.

    ``metrics_port``, ``metrics_host``: where Prometheus may scrape, and /health and /ready answer; none opens no port,
    the default host is this machine. ``security``: Kafka's TLS and SASL.

    ``sample_share``: the share of all notifications that are reported in full, 1, 0.5, 0.25 and so on, the same at all
    brokers: less telemetry, but costs become estimates (docs/sampling.md). ``sample_run``: how many consecutive
    notifications of a publisher are sampled together, 4, 8, 16, 32 or 64: about as many as it publishes in a second.
    Default 4: longer runs save more for busy publishers, short ones show more of slow ones. ``sample_counts_s``: over
    how many seconds deliveries of all other notifications are counted together, a divisor of the window.
    """

    bootstrap: str
    inventory_path: Path
    status_file: Path
    namespace: str = DEFAULT_NAMESPACE
    broker: str | None = None
    connector: str | None = None
    connector_user: str | None = None
    connector_password_file: Path | None = None
    connector_credentials_file: Path | None = None
    connector_ca_file: Path | None = None
    connector_certificate_file: Path | None = None
    connector_key_file: Path | None = None
    connector_filters: tuple[str, ...] = ()
    connector_exchange: str = "amq.topic"
    connector_api: str | None = None
    connector_api_user: str | None = None
    connector_api_password_file: Path | None = None
    connector_log_file: Path | None = None
    connector_session_s: float = 3_600.0
    durable_stream: str | None = None
    durable_session: bool = False
    local_streams: tuple[str, ...] = ()
    groups_once: tuple[str, ...] = ()
    peers_path: Path | None = None
    listen: str | None = None
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    flush_ms: float = 250.0
    command_poll_ms: float = 20.0
    link_bytes_max: int = 64 << 20
    link_silence_ms_max: float = 5_000.0
    kafka_outage_s_max: float = 600.0
    kafka_buffer_records_max: int = 100_000
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    security: KafkaSecurity = field(default_factory=KafkaSecurity)
    sample_share: float = 1.0
    sample_run: int = 4
    sample_counts_s: int = 5

    @property
    def sampling(self) -> Sampling:
        """What brokers report in full."""
        return Sampling.of(self.sample_share, self.sample_counts_s, self.sample_run)

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
        """The file that keeps what clients of an MQTT broker want, for the node's next life."""
        return self.status_file.with_name(f"{self._file_name}.interest.json")

    @property
    def peers_file(self) -> Path:
        """The file with the addresses of the nodes."""
        return self.peers_path or self.inventory_path.with_name("peers.json")

    def faults(self) -> list[str]:
        """Return every fault as one sentence with the value, the limit and what to do; empty if there is none."""
        found = too_small(
            [
                ("flush_ms", self.flush_ms, 10.0, "each flush is a Kafka record"),
                ("command_poll_ms", self.command_poll_ms, 1.0, "each poll takes time from messages"),
                ("link_bytes_max", self.link_bytes_max, 1 << 20, "one message may have that size"),
                ("link_silence_ms_max", self.link_silence_ms_max, 100.0, "links are probed five times in it"),
                ("connector_session_s", self.connector_session_s, 0.0, "no session ends before its client has left"),
                ("kafka_outage_s_max", self.kafka_outage_s_max, 10.0, "Kafka takes seconds to recover"),
                ("kafka_buffer_records_max", self.kafka_buffer_records_max, 1_000, "an outage fills it quickly"),
            ]
        )
        if self.flush_ms > 1_000:
            found.append(f"flush_ms is {self.flush_ms:g}: at most 1000, since a batch must not span a whole window")
        found += sampling_faults(self.sample_share, self.sample_counts_s, self.sample_run)
        files = (self.ca_file, self.certificate_file, self.key_file)
        if any(files) and not all(files):
            found.append("ca_file, certificate_file and key_file go together: mutual TLS needs all three")
        streams = [("durable_stream", self.durable_stream)] if self.durable_stream else []
        streams += [("local_streams", name) for name in self.local_streams if name != ANY]
        for setting, name in streams:
            if not name or set(name) & set(" .*>/\\") or not name.isprintable():
                found.append(f"{setting} has {name!r}: a stream's name has no spaces, dots, *, > and /")
        if bool(self.connector_certificate_file) != bool(self.connector_key_file):
            found.append("connector_certificate_file and connector_key_file go together: give both or neither")
        for name in ("connector", "connector_api"):
            if "@" in (getattr(self, name) or ""):
                found.append(
                    f"{name} holds a login: use {name}_user and {name}_password_file instead, so that no settings "
                    "contain it"
                )
        for group in self.groups_once:
            if not group or not group.isprintable() or len(quote(group, safe="")) > GROUP_LENGTH_MAX:
                found.append(
                    f"groups_once has {group!r}: a group has 1 to {GROUP_LENGTH_MAX} printable characters, as in a URL"
                )
        found += self._connector_faults() + listen_faults(self.listen)
        return found + port_faults(self.metrics_port, self.metrics_host)

    def _connector_faults(self) -> list[str]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return connector_faults(values, {each.name: each.default for each in fields(self)})
