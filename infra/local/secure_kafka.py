"""Secure the local Kafka: certificates, users that log in by SCRAM-SHA-512, and an authorizer.

In: a directory in the run directory. Out: the server's configuration, the arguments for formatting its data, and how
clients log in. Each password is in a file that only the current user can read; settings name the file.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regraft.infra.kafka.kafka_access import JAAS_MODULES, KafkaSecurity
from regraft.infra.local.make_certificates import IssuedCertificate, LocalAuthority
from regraft.infra.process.quote_paths import property_value
from regraft.infra.process.write_private import write_private

MECHANISM = "SCRAM-SHA-512"
SERVER_USER = "kafka"  # The broker's own login.
LOCAL_USER = "regraft"
PASSWORD_BYTES = 32

# The two listeners are those of kafka_server.py. Only the process itself uses the controller's, with its certificate:
# SCRAM would need passwords from metadata that the controller does not serve yet.
PROPERTIES = """\
listener.security.protocol.map=BROKER:SASL_SSL,CONTROLLER:SSL
listener.name.controller.ssl.client.auth=required
sasl.enabled.mechanisms={mechanism}
sasl.mechanism.inter.broker.protocol={mechanism}
listener.name.broker.{mechanism_lower}.sasl.jaas.config={jaas}
ssl.keystore.type=PEM
ssl.keystore.location={server_file}
ssl.truststore.type=PEM
ssl.truststore.location={ca_file}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users={super_users}
"""


@dataclass(frozen=True, slots=True)
class SecuredKafka:
    """The files that secure a local Kafka; ``users`` may log in, and the local one may do anything."""

    directory: Path
    authority: LocalAuthority
    server: IssuedCertificate
    users: tuple[str, ...]

    def properties(self) -> str:
        """Return lines for the server's configuration, which include the server's password."""
        user, password = SERVER_USER, self._password(SERVER_USER)
        super_users = (f"CN={SERVER_USER}", SERVER_USER, LOCAL_USER)
        return PROPERTIES.format(
            mechanism=MECHANISM,
            mechanism_lower=MECHANISM.lower(),
            jaas=f'{JAAS_MODULES[MECHANISM]} required username="{user}" password="{password}";',
            server_file=property_value(self.server.both_file),
            ca_file=property_value(self.authority.ca_file),
            super_users=";".join(f"User:{name}" for name in super_users),
        )

    def format_arguments(self) -> list[str]:
        """Return the arguments that give a new server its users; they include passwords, so pass them in a file."""
        names = (SERVER_USER, *self.users)
        scram = (f"{MECHANISM}=[name={name},password={self._password(name)}]" for name in names)
        return [word for each in scram for word in ("--add-scram", each)]

    def login(self, user: str = LOCAL_USER) -> KafkaSecurity:
        """Return how a client logs in as ``user``."""
        return KafkaSecurity(
            ca_file=self.authority.ca_file,
            tls=True,
            mechanism=MECHANISM,
            username=user,
            password_file=self._password_file(user),
        )

    def _password(self, user: str) -> str:
        return self._password_file(user).read_text()

    def _password_file(self, user: str) -> Path:
        return self.directory / f"{user}.password"


def secure_kafka(directory: Path, users: Sequence[str] = (LOCAL_USER,)) -> SecuredKafka:
    """Make the files in ``directory``; existing passwords are kept, because the server's data contain them."""
    authority = LocalAuthority(directory)
    secured = SecuredKafka(directory, authority, authority.issue(SERVER_USER), tuple(users))
    for user in (SERVER_USER, *users):
        file = directory / f"{user}.password"
        if not file.exists():
            write_private(file, secrets.token_urlsafe(PASSWORD_BYTES).encode())
    return secured
