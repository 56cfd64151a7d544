"""Settings of the dashboard as one frozen value, each with its unit and the reason for its default."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from regraft.infra.orders.operated_settings import OperatedSettings

PORT_MAX = 65_535
SECRET_BYTES_MIN = 32  # The size of an HS256 signature: a shorter key would be easier to guess than a signature.


@dataclass(frozen=True, kw_only=True)
class DashboardSettings(OperatedSettings):
    """The page in the browser: where it is served, who may give orders, how often it reads the live view."""

    client_id = "regraft-dashboard"

    # The brokers and their link costs, for their positions on the map.
    inventory_path: Path
    host: Annotated[str, "host at which the page is served"] = "127.0.0.1"
    port: Annotated[int, "port at which the page is served"] = 8090
    host_names: Annotated[
        tuple[str, ...],
        "host names under which browsers may request the page; * allows any",
    ] = ("127.0.0.1", "localhost", "[::1]")
    certificate_file: Annotated[Path | None, "certificate (PEM) to serve the page over TLS; none for plain HTTP"] = None
    key_file: Annotated[Path | None, "private key (PEM) of that certificate, without a passphrase"] = None
    secret: Annotated[
        str | None,
        "key that signs tokens, at least 32 bytes; without it or secret_file the page is read-only",
    ] = field(default=None, repr=False)
    secret_file: Annotated[Path | None, "file with the key that signs tokens, instead of secret"] = None
    login_to_read: Annotated[
        bool,
        "reading needs a token, too, except of metrics and health; false lets anyone who can reach the page read it",
    ] = False
    # The longest lifetime of a token: one login per day. Longer ones would outlive who holds them; a shorter one is
    # asked for with the token.
    token_hours_max: float = 24.0
    revoked_file: Annotated[
        Path | None,
        "ids of revoked tokens, one per line; none for revoked-tokens.txt in run.directory",
    ] = None
    # How often the live view is read. Default 1000, the pace at which the controller writes it.
    poll_ms: int = 1000
    # How long Valkey may take to answer. Default 800, below poll_ms, so that reads never pile up.
    answer_ms_max: int = 800
    # After this time without news from the controller, the page says so. Default 5000, several updates.
    stale_ms: int = 5000
    # Pages open at once. Default 64; more are refused with a message.
    clients_max: int = 64
    # Pages open at once from one address (IPv6: one /64 network), so that no client takes all places: a quarter of
    # them. Behind a proxy all come from its address unless trusted_proxies names it.
    clients_per_address_max: int = 16
    trusted_proxies: Annotated[
        tuple[str, ...],
        "addresses and networks of proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted",
    ] = ()
    # Windows whose rate, completeness and latency are kept. Default 2000, the same as for costs.
    windows_max: int = 2000

    @property
    def scheme(self) -> str:
        """The URL scheme: http or https."""
        return "http" if self.certificate_file is None else "https"

    @property
    def revoked_path(self) -> Path:
        """The file of revoked tokens' ids."""
        return self.revoked_file or self.inventory_path.with_name("revoked-tokens.txt")

    def errors(self) -> list[str]:
        """Return what is wrong with the settings, one sentence each, without secrets."""
        errors: list[str] = []
        if not 0 <= self.port <= PORT_MAX:
            errors.append(f"port is {self.port}: must be from 0 (a free one) to {PORT_MAX}")
        if not self.host_names:
            errors.append('host_names is empty: name at least one, or "*" for any')
        if (self.certificate_file is None) != (self.key_file is None):
            files = f"certificate_file is {self.certificate_file or 'none'} and key_file is {self.key_file or 'none'}"
            errors.append(f"{files}: give both, or neither")
        errors += [error for proxy in self.trusted_proxies for error in _proxy_errors(proxy)]
        if self.login_to_read and self.secret is None and self.secret_file is None:
            errors.append("login_to_read is true and there is no secret that signs tokens: give secret or secret_file")
        if self.secret is not None and self.secret_file is not None:
            errors.append("secret and secret_file are both given: give one of them")
        if self.secret is not None:
            errors += secret_errors(self.secret, "secret")
        return errors


def _proxy_errors(proxy: str) -> list[str]:
    try:
        ipaddress.ip_network(proxy)
    except ValueError as error:
        return [
            f"trusted_proxies has {proxy!r} ({error}): name the address of a proxy, or a network such as 10.0.0.0/8"
        ]
    return []


def secret_errors(secret: str, where: str) -> list[str]:
    """Return what is wrong with a secret, without revealing it; ``where`` names where it is kept."""
    size = len(secret.encode())
    if size >= SECRET_BYTES_MIN:
        return []
    return [
        f"{where} has {size} bytes: at least {SECRET_BYTES_MIN}, or tokens can be forged; "
        '`python -c "import secrets; print(secrets.token_urlsafe(32))"` prints one'
    ]
