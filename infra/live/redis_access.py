"""How a process reaches Valkey or Redis: a URL, and TLS and credentials that are not part of it.

Out: the options of redis-py's clients. Building clients, each with its own timeouts, belongs to their users.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from regraft.infra.process.connection_security import ConnectionSecurity

SCHEMES = ("redis", "rediss", "unix")
FORMS = "redis://HOST:PORT/DATABASE, rediss:// for TLS, or unix://PATH"


@dataclass(frozen=True)
class RedisSecurity(ConnectionSecurity):
    """TLS and the ACL user of the live view; TLS is used if the URL's scheme is rediss://."""


@dataclass(frozen=True, slots=True)
class RedisAccess:
    """Where the server is and how the connection is secured; the URL overrides the security settings."""

    url: str = field(repr=False)
    security: RedisSecurity = RedisSecurity()

    @property
    def is_address(self) -> bool:
        """Return True if the URL names a server."""
        try:
            parts = urlsplit(self.url)
            return parts.scheme in SCHEMES and parts.port != 0 and bool(parts.netloc or parts.path)
        except ValueError:  # A port that is none, or half an IPv6 address.
            return False

    @property
    def is_tls(self) -> bool:
        """Return True if the connection is encrypted."""
        return urlsplit(self.url).scheme == "rediss"

    def errors(self) -> list[str]:
        """Return what is wrong, one sentence each; none contains the URL or a secret."""
        errors, security = self.security.errors(), self.security
        if not self.is_tls:
            names = ("ca_file", "certificate_file", "key_file")
            named = [name for name in names if getattr(security, name) is not None]
            errors += [f"{name} is given, but the URL is not rediss://: use such a URL" for name in named]
            if not security.check_host_name:
                errors.append(
                    "check_host_name is false, but the URL is not rediss://: there is no certificate to check"
                )
        has_password = security.password_file is not None
        if security.username is not None and not has_password:
            errors.append("username is given without password_file: give it")
        if has_password and "@" in urlsplit(self.url).netloc:
            errors.append("a password is named, but the URL holds credentials as well: remove them from the URL")
        return errors

    def client_options(self) -> dict[str, Any]:
        """Return the keyword arguments of redis-py's ``from_url``, including secrets. Raises SecretMissingError."""
        security = self.security
        options: dict[str, Any] = {"username": security.username, "password": security.password}
        if self.is_tls:
            options |= {
                "ssl_ca_certs": security.trusted_file,
                "ssl_certfile": security.certificate_file,
                "ssl_keyfile": security.key_file,
                "ssl_password": security.key_password,
            }
        given = {name: str(value) for name, value in options.items() if value is not None}
        return given | ({"ssl_check_hostname": security.check_host_name} if self.is_tls else {})
