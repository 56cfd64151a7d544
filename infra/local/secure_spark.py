"""Authenticate and encrypt what the parts of a Spark cluster say to each other, by a secret that all of them have.

Sessions are built by :mod:`infra.local.spark_session`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from regraft.infra.kafka.kafka_access import KafkaSecurity
from regraft.infra.process.stack_error import StackError
from regraft.infra.process.write_private import write_private

SECRET_LENGTH_MIN = 16
LOCAL_MASTER = "local"
SECRET = "spark.authenticate.secret"
AUTHENTICATE, ENCRYPT, ENCRYPT_BY_TLS = "spark.authenticate", "spark.network.crypto.enabled", "spark.ssl.rpc.enabled"
# The cipher is Spark's default, AES in CTR mode: in GCM mode, workers of Spark 4.0.0 never register at their master.
SETTINGS = {AUTHENTICATE: "true", ENCRYPT: "true"}


class SparkSecretError(StackError):
    """The secret of the cluster cannot be used; the message says why, without it."""


def write_properties(secret_file: Path, properties_file: Path) -> None:
    """Write Spark's settings with the secret to a file that only this user can read. Raises SparkSecretError."""
    properties = {**SETTINGS, SECRET: _read_secret(secret_file)}
    write_private(properties_file, "".join(f"{name} {value}\n" for name, value in properties.items()).encode())


def rpc_error(master: str, setting: Callable[[str, str], str | None], kafka: KafkaSecurity) -> str:
    """Return why tasks must not carry Kafka's login to this master's executors, "" if they may.

    ``setting(name, default)`` reads the settings of the session.
    """
    has_secrets = kafka.mechanism is not None or kafka.key_file is not None
    if not has_secrets or master.startswith(LOCAL_MASTER):
        return ""
    errors = {name: setting(name, "false") == "true" for name in (AUTHENTICATE, ENCRYPT, ENCRYPT_BY_TLS)}
    if errors[AUTHENTICATE] and (errors[ENCRYPT] or errors[ENCRYPT_BY_TLS]):
        return ""
    missing = AUTHENTICATE if not errors[AUTHENTICATE] else ENCRYPT
    return (
        f"Kafka's login would reach the executors of {master} over connections that are not protected ({missing} is "
        "false): give spark.secret_file the secret of the cluster, or set spark.authenticate, "
        "spark.authenticate.secret and spark.network.crypto.enabled in spark-defaults.conf of driver, master and "
        "workers"
    )


def _read_secret(file: Path) -> str:
    try:
        secret = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SparkSecretError(
            f"spark.secret_file {file} cannot be read ({reason}): check its name and permissions"
        ) from error
    if len(secret) < SECRET_LENGTH_MIN or not secret.isascii() or not secret.isprintable() or set(secret) & set(" \\"):
        raise SparkSecretError(
            f"spark.secret_file {file} holds no usable secret: put {SECRET_LENGTH_MIN} or more letters, digits and "
            "signs there, in one line without spaces and backslashes"
        )
    return secret
