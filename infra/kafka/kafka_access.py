"""How a process reaches Kafka: the one value from which all its clients are built.

Out: the options of the connection for librdkafka's clients and for Spark. Building clients belongs to
:mod:`infra.kafka.kafka_clients`, reading secrets to :mod:`infra.process.connection_security`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from regraft.infra.process.connection_security import ConnectionSecurity
from regraft.infra.process.quote_paths import quoted

PORTS = 65_536
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
JAAS_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    OAUTHBEARER: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
OAUTH_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


@dataclass(frozen=True)
class KafkaSecurity(ConnectionSecurity):
    """TLS and SASL of all Kafka clients, including Spark's; the default is plain text without login."""

    tls: Annotated[bool, "encrypt connections and check the servers' certificates"] = False
    mechanism: Annotated[
        str | None,
        "SASL mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER; none for no SASL",
    ] = None
    token_url: Annotated[
        str | None,
        "with OAUTHBEARER, the address at which username and password are exchanged for a token",
    ] = None
    token_scope: Annotated[str | None, "OAuth scope to request"] = None
    allow_unencrypted_login: Annotated[
        bool,
        "allow SASL without TLS: the password, or enough to guess it, can then be read on the network",
    ] = False

    @property
    def protocol(self) -> str:
        """Kafka's name of the security protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
        transport = "SSL" if self.tls else "PLAINTEXT"
        return transport if self.mechanism is None else f"SASL_{transport}"

    def errors(self) -> list[str]:
        """Return what is wrong, one sentence each; none contains a secret."""
        return [*super().errors(), *self._tls_errors(), *self._login_errors()]

    def client_options(self) -> dict[str, str]:
        """Return the options of librdkafka, which include secrets: never log them. Raises SecretMissingError."""
        options = {"security.protocol": self.protocol.lower()}
        if self.tls:
            options["ssl.endpoint.identification.algorithm"] = "https" if self.check_host_name else "none"
            options |= _given(
                {
                    "ssl.ca.location": self.trusted_file,
                    "ssl.certificate.location": self.certificate_file,
                    "ssl.key.location": self.key_file,
                    "ssl.key.password": self.key_password,
                }
            )
        if self.mechanism is not None:
            options["sasl.mechanism"] = self.mechanism
            options |= _given(self._token_options() if self.mechanism == OAUTHBEARER else self._login_options())
        return options

    def spark_options(self) -> dict[str, str]:
        """Return the options of Spark's Kafka source, named as in the Java client; they include secrets.

        They hold certificates and keys as text, so executors on other machines need no files. Raises
        SecretMissingError.
        """
        options = {"security.protocol": self.protocol}
        if self.tls:
            options |= self._java_tls_options()
        if self.mechanism is not None:
            options |= {"sasl.mechanism": self.mechanism, "sasl.jaas.config": self._jaas()}
        if self.mechanism == OAUTHBEARER:
            options["sasl.login.callback.handler.class"] = OAUTH_HANDLER
            options["sasl.oauthbearer.token.endpoint.url"] = self.token_url or ""
        return {f"kafka.{name}": value for name, value in options.items()}

    def _tls_errors(self) -> list[str]:
        errors = []
        if not self.tls:
            names = ("certificate_file", "key_file", *(("ca_file",) if self.token_url is None else ()))
            named = [name for name in names if getattr(self, name) is not None]
            errors += [f"{name} is given, but tls is false: set tls, or leave it out" for name in named]
            if not self.check_host_name:
                errors.append("check_host_name is false, but so is tls: there is no certificate to check")
        if self.mechanism is not None and not self.tls and not self.allow_unencrypted_login:
            errors.append(
                f"mechanism is {self.mechanism} without tls: set tls, or allow_unencrypted_login if nobody else can "
                "read the network"
            )
        return errors

    def _login_errors(self) -> list[str]:
        given = {"username": bool(self.username), "password_file": self.password_file is not None}
        if self.mechanism is None:
            return [f"{name} is given without a mechanism: {_LISTED}" for name, is_so in given.items() if is_so]
        if self.mechanism not in MECHANISMS:
            return [f"mechanism is {self.mechanism!r}: {_LISTED}"]
        errors = [
            f"mechanism is {self.mechanism} without {name}: give it" for name, is_so in given.items() if not is_so
        ]
        if self.mechanism == OAUTHBEARER:
            return [*errors, *self._token_errors()]
        named = [name for name in ("token_url", "token_scope") if getattr(self, name) is not None]
        return errors + [f"{name} is given with {self.mechanism}: only {OAUTHBEARER} uses tokens" for name in named]

    def _token_errors(self) -> list[str]:
        url = self.token_url or ""
        if "@" in url:  # Settings are shown, so the URL must not hold a secret.
            return ["token_url holds credentials: give them as username and password_file"]
        if not url.startswith(("https://", "http://")):
            return [f"token_url is {self.token_url}: {OAUTHBEARER} needs an https address to ask for a token"]
        if url.startswith("http://") and not self.allow_unencrypted_login:
            return [f"token_url is {url}: use https, or set allow_unencrypted_login"]
        return []

    def _login_options(self) -> dict[str, object]:
        return {"sasl.username": self.username, "sasl.password": self.password}

    def _token_options(self) -> dict[str, object]:
        return {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": self.token_url,
            "sasl.oauthbearer.client.id": self.username,
            "sasl.oauthbearer.client.secret": self.password,
            "sasl.oauthbearer.scope": self.token_scope,
            "https.ca.location": self.trusted_file,
        }

    def _java_tls_options(self) -> dict[str, str]:
        options = {"ssl.endpoint.identification.algorithm": "https" if self.check_host_name else ""}
        if self.trusted_file is not None:
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": self.trusted_file.read_text()}
        if self.certificate_file is not None and self.key_file is not None:
            options |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": self.certificate_file.read_text(),
                "ssl.keystore.key": _java_key(self.key_file.read_bytes(), self.key_password),
            }
        return options

    def _jaas(self) -> str:
        mechanism = str(self.mechanism)
        names = ("clientId", "clientSecret") if mechanism == OAUTHBEARER else ("username", "password")
        values = dict(zip(names, (self.username, self.password), strict=True))
        if mechanism == OAUTHBEARER:
            values["scope"] = self.token_scope
            if self.ca_file is not None:  # The token is fetched over a separate TLS connection.
                values |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca_file.absolute())}
        options = " ".join(f"{name}={quoted(value)}" for name, value in values.items() if value is not None)
        return f"{JAAS_MODULES[mechanism]} required {options};"


@dataclass(frozen=True, slots=True)
class KafkaAccess:
    """Where Kafka is, the client's name, and how the connection is secured.

    ``bootstrap``: servers as host:port, separated by commas. ``client_id``: the client's name in Kafka's logs and
    quotas, and the consumer group of readers that do not commit.
    """

    bootstrap: str
    client_id: str = "regraft"
    security: KafkaSecurity = KafkaSecurity()

    def client_options(self) -> dict[str, str]:
        """Return the connection as options of librdkafka, including secrets. Raises SecretMissingError."""
        return {"bootstrap.servers": self.bootstrap, "client.id": self.client_id, **self.security.client_options()}

    def spark_options(self) -> dict[str, str]:
        """Return the connection as options of Spark's Kafka source, including secrets. Raises SecretMissingError."""
        return {"kafka.bootstrap.servers": self.bootstrap, **self.security.spark_options()}


_LISTED = f"use one of {', '.join(MECHANISMS)}"


def address_errors(bootstrap: str) -> list[str]:
    """Return what is wrong with servers as host:port, separated by commas, one sentence each."""
    errors = []
    for server in (each.strip() for each in bootstrap.split(",")):
        host, _, port = server.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < PORTS:
            errors.append(f"{server!r} is not an address: give the servers as host:port, separated by commas")
    return errors


def _given(options: dict[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in options.items() if value is not None}


def _java_key(key: bytes, password: str | None) -> str:
    """Return a private key of any form as PKCS #8, the only form that Java reads."""
    from cryptography.hazmat.primitives import serialization

    opened = serialization.load_pem_private_key(key, None if password is None else password.encode())
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return opened.private_bytes(serialization.Encoding.PEM, form, plain).decode()
