"""Settings of the dashboard as one frozen value, each with its unit and the reason for its default."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from regraft.infra.kafka.kafka_access import KafkaAccess, KafkaSecurity
from regraft.infra.live.redis_access import RedisAccess, RedisSecurity
from regraft.infra.orders.order_keys import OrderSettings
from regraft.schemas.topics import DEFAULT_NAMESPACE

PORT_MAX = 65_535
SECRET_BYTES_MIN = 32  # The size of an HS256 signature: a shorter key would be easier to guess than a signature.
HOURS_PER_MONTH = 24 * 31


@dataclass(frozen=True, kw_only=True)
class DashboardSettings:
    """The page in the browser: where it is served, who may give orders, how often it reads the live view.

    ``bootstrap``: Kafka's bootstrap servers, to which orders go. ``security``: its TLS and SASL.
    ``namespace``: prefix of topics and live-view keys.
    ``redis_url``: where the live view is read. ``redis_security``: its TLS and credentials.
    ``inventory_path``: the brokers and their link costs, for their positions on the map. ``status_file``: JSON for the
    process that started it; None writes none.
    ``host``, ``port``: where the page is served. Default: this machine only, 8090.
    ``host_names``: the host names under which browsers may request it; * allows any. Others are refused, or another
    site's page could read it through a name that resolves to this address. Default: the names of this machine's
    loopback.
    ``certificate_file``, ``key_file``: PEM files to serve it over TLS, the key without a passphrase; both or neither.
    They are read at start-up. Default: none, which means plain HTTP, for this machine only or behind a proxy that
    terminates TLS.
    ``secret``: the key that signs tokens, at least 32 bytes; none makes the page read-only unless there is a
    secret_file. ``secret_file``: a file that holds it instead.
    ``login_to_read``: whether reading also needs a token; metrics and health stay open. Default no: anyone who can
    reach the page may read it. ``token_hours_max``: the longest lifetime of a token. Default 24: one login per day.
    ``revoked_file``: ids of revoked tokens, one per line, checked on each request. Default: revoked-tokens.txt in
    run.directory, next to the inventory.
    ``poll_ms``: how often the live view is read. Default 1000, the pace at which the controller writes it.
    ``answer_ms_max``: how long Valkey may take to answer. Default 800, below poll_ms, so that reads never pile up.
    ``stale_ms``: after this time without news from the controller, the page says so. Default 5000, several updates.
    ``clients_max``: pages open at once. Default 64; more are refused with a message.
    ``clients_per_address_max``: pages open at once from one address (IPv6: one /64 network), so that no client takes
    all places. Default 16; behind a proxy all come from its address unless trusted_proxies names it.
    ``trusted_proxies``: addresses and networks of proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted.
    Default: none, because anybody can send these headers.
    ``windows_max``: windows whose rate, completeness and latency are kept. Default 2000, the same as for costs.
    ``orders``: the key that signs orders given here.
    """

    bootstrap: str
    inventory_path: Path
    security: KafkaSecurity = field(default_factory=KafkaSecurity)
    namespace: str = DEFAULT_NAMESPACE
    redis_url: str | None = field(default=None, repr=False)
    redis_security: RedisSecurity = field(default_factory=RedisSecurity)
    status_file: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8090
    host_names: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")
    certificate_file: Path | None = None
    key_file: Path | None = None
    secret: str | None = field(default=None, repr=False)
    secret_file: Path | None = None
    login_to_read: bool = False
    token_hours_max: float = 24.0
    revoked_file: Path | None = None
    poll_ms: int = 1000
    answer_ms_max: int = 800
    stale_ms: int = 5000
    clients_max: int = 64
    clients_per_address_max: int = 16
    trusted_proxies: tuple[str, ...] = ()
    windows_max: int = 2000
    orders: OrderSettings = field(default_factory=OrderSettings)

    @property
    def kafka(self) -> KafkaAccess:
        """This stage's access to Kafka."""
        return KafkaAccess(self.bootstrap, "regraft-dashboard", self.security)

    @property
    def redis(self) -> RedisAccess | None:
        """This stage's access to the live view, None if none is configured."""
        return None if self.redis_url is None else RedisAccess(self.redis_url, self.redis_security)

    @property
    def scheme(self) -> str:
        """The URL scheme: http or https."""
        return "http" if self.certificate_file is None else "https"

    @property
    def revoked_path(self) -> Path:
        """The file of revoked tokens' ids."""
        return self.revoked_file or self.inventory_path.with_name("revoked-tokens.txt")

    def faults(self) -> list[str]:
        """Return what is wrong with the settings, one sentence each, without secrets."""
        least = {"poll_ms": 50, "answer_ms_max": 10, "windows_max": 10}
        least |= {"clients_max": 1, "clients_per_address_max": 1}
        found = [
            f"{name} is {getattr(self, name)}: at least {limit}"
            for name, limit in least.items()
            if getattr(self, name) < limit
        ]
        if not 0 <= self.port <= PORT_MAX:
            found.append(f"port is {self.port}: from 0 (a free one) to {PORT_MAX}")
        if not self.host_names:
            found.append('host_names is empty: name at least one, or "*" for any')
        if self.stale_ms < 2 * self.poll_ms:
            found.append(
                f"stale_ms is {self.stale_ms}: at least twice poll_ms, {self.poll_ms}, or every state is always stale"
            )
        if not 0 < self.token_hours_max <= HOURS_PER_MONTH:
            found.append(f"token_hours_max is {self.token_hours_max:g}: above 0, at most {HOURS_PER_MONTH}, a month")
        if (self.certificate_file is None) != (self.key_file is None):
            files = f"certificate_file is {self.certificate_file or 'none'} and key_file is {self.key_file or 'none'}"
            found.append(f"{files}: give both, or neither")
        found += [fault for proxy in self.trusted_proxies for fault in _proxy_faults(proxy)]
        if self.login_to_read and self.secret is None and self.secret_file is None:
            found.append("login_to_read is true and there is no secret that signs tokens: give secret or secret_file")
        if self.secret is not None and self.secret_file is not None:
            found.append("secret and secret_file are both given: give one of them")
        if self.secret is not None:
            found += secret_faults(self.secret, "secret")
        return found


def _proxy_faults(proxy: str) -> list[str]:
    try:
        ipaddress.ip_network(proxy)
    except ValueError as error:
        return [f"trusted_proxies has {proxy!r} ({error}): name the address of a proxy, or a network like 10.0.0.0/8"]
    return []


def secret_faults(secret: str, where: str) -> list[str]:
    """Return what is wrong with a secret, without revealing it; ``where`` names where it is kept."""
    size = len(secret.encode())
    if size >= SECRET_BYTES_MIN:
        return []
    return [
        f"{where} has {size} bytes: at least {SECRET_BYTES_MIN}, or tokens can be forged; "
        '`python -c "import secrets; print(secrets.token_urlsafe(32))"` makes one'
    ]
