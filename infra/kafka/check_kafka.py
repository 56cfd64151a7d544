"""Find out why Kafka cannot be used, step by step: name, port, TLS, certificate, login, rights.

In: how to reach Kafka, and the topics to use. Out: the first error and its remedy, or what was found. It writes nothing
to Kafka. Other needs of a machine belong to ``doctor``.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it re-exports them without saying so
    AclOperation,
    AdminClient,
)

from regraft.infra.kafka.kafka_access import KafkaAccess, KafkaSecurity
from regraft.infra.kafka.kafka_clients import open_admin
from regraft.schemas.topics import MEMBERS, PLANS, TOPICS, topic_names

TIMEOUT_S = 5.0
SHOWN_MAX = 5
# OpenSSL's codes for errors of certificates.
NOT_YET_VALID, EXPIRED, HOST_MISMATCH, ADDRESS_MISMATCH = 9, 10, 62, 64


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong, and what to do, one sentence each."""

    found: str
    to_do: str


def check_kafka(kafka: KafkaAccess, topics: Sequence[str] = (), timeout_s: float = TIMEOUT_S) -> Diagnosis | str:
    """Return the first error, else what was found; several servers are checked one by one."""
    for server in kafka.bootstrap.split(","):
        error = _check_server(server.strip(), kafka.security, timeout_s)
        if error is not None:
            return error
    return _check_login(kafka, topics, timeout_s)


def why_closed(kafka: KafkaAccess, timeout_s: float) -> Diagnosis | None:
    """Return why none of the servers accepts connections, as found at the first; None if one of them does."""
    errors = []
    for server in kafka.bootstrap.split(","):
        error = _check_server(server.strip(), kafka.security, timeout_s)
        if error is None:
            return None
        errors.append(error)
    return errors[0]


def missing_topics(kafka: KafkaAccess, namespace: str, agents: Sequence[str], timeout_s: float) -> list[str]:
    """Return the topics that are missing although others exist; none if Kafka does not answer in time."""
    names = [name for topic in TOPICS for name in topic_names(topic, namespace, agents)]
    admin, missing = open_admin(kafka, timeout_s), []
    for name, future in admin.describe_topics(TopicCollection(names), request_timeout=timeout_s).items():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                continue
            missing.append(name)
    return missing if len(missing) < len(names) else []


def missing_to_do(missing: Sequence[str]) -> str:
    """Return what to do about missing topics."""
    keeps = {PLANS.suffix, MEMBERS.suffix} & {name.rpartition(".")[2] for name in missing}
    then = " If they were deleted, then restore a backup, or see what `regraft recover` finds." if keeps else ""
    return f"Create them with `regraft topics --create`.{then}"


def _check_server(server: str, security: KafkaSecurity, timeout_s: float) -> Diagnosis | None:
    host, _, port = server.rpartition(":")
    host = host.strip("[]")
    try:
        socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        return Diagnosis(f"the name {host} does not resolve ({error.strerror})", "Correct the name, or check DNS.")
    try:
        with socket.create_connection((host, int(port)), timeout_s) as connection:
            return _check_tls(connection, server, host, security) if security.tls else None
    except TimeoutError:
        return Diagnosis(f"{server} does not answer within {timeout_s:g} s", "Check for a firewall or a wrong port.")
    except OSError as error:
        to_do = "Start Kafka, or correct the port; check that it listens on this address."
        return Diagnosis(f"port {port} of {host} is closed ({error.strerror or error})", to_do)


def _check_tls(connection: socket.socket, server: str, host: str, security: KafkaSecurity) -> Diagnosis | None:
    context = ssl.create_default_context(cafile=security.trusted_file)
    context.check_hostname = security.check_host_name
    if security.certificate_file is not None:
        password = security.key_password or ""
        context.load_cert_chain(security.certificate_file, security.key_file, lambda: password)
    try:
        with context.wrap_socket(connection, server_hostname=host):
            return None
    except ssl.SSLCertVerificationError as error:
        return _certificate_diagnosis(error, server, host)
    except (ssl.SSLError, ConnectionError) as error:
        reason = getattr(error, "reason", None) or "it closed the connection"
        to_do = "Use its TLS port, or set kafka.security.tls to false if the network is trusted."
        return Diagnosis(f"{server} does not speak TLS ({reason})", to_do)


def _certificate_diagnosis(error: ssl.SSLCertVerificationError, server: str, host: str) -> Diagnosis:
    if error.verify_code in (HOST_MISMATCH, ADDRESS_MISMATCH):
        to_do = "Use a name that the certificate covers, or have one issued for this name."
        return Diagnosis(f"the certificate of {server} is for a different name than {host}", to_do)
    if error.verify_code in (EXPIRED, NOT_YET_VALID):
        is_over = error.verify_code == EXPIRED
        what = "has expired" if is_over else "is not valid yet"
        return Diagnosis(f"the certificate of {server} {what}", "Renew it, and check the clocks on both sides.")
    to_do = "Name its authority's certificate in kafka.security.ca_file, once you have verified it."
    return Diagnosis(f"the certificate of {server} is not trusted ({error.verify_message})", to_do)


def _check_login(kafka: KafkaAccess, topics: Sequence[str], timeout_s: float) -> Diagnosis | str:
    errors: list[KafkaError] = []
    admin = open_admin(kafka, timeout_s, on_error=errors.append)
    try:
        brokers = admin.list_topics(timeout=timeout_s).brokers
    except KafkaException as error:
        admin.poll(0)
        return _login_diagnosis(kafka, [*errors, error.args[0]])
    rights = _check_rights(admin, kafka, topics, timeout_s) if topics else ""
    return rights if isinstance(rights, Diagnosis) else f"{kafka.bootstrap} answers, {len(brokers)} brokers{rights}"


def _login_diagnosis(kafka: KafkaAccess, errors: Sequence[KafkaError]) -> Diagnosis:
    security, reasons = kafka.security, "; ".join(dict.fromkeys(error.str() for error in errors))
    refused = next((error for error in errors if error.code() == KafkaError._AUTHENTICATION), None)
    if refused is not None and "upported" in refused.str():
        to_do = "Set kafka.security.mechanism to one of them."
        return Diagnosis(f"{kafka.bootstrap} does not accept {security.mechanism} ({_short(refused.str())})", to_do)
    if refused is not None:
        to_do = "Correct kafka.security.username, or the password that password_file names."
        return Diagnosis(
            f"{kafka.bootstrap} refuses the credentials of {security.username or 'an anonymous client'}", to_do
        )
    if "ertificate" in reasons:
        to_do = "Name one that it trusts in kafka.security.certificate_file and key_file."
        return Diagnosis(f"{kafka.bootstrap} does not accept the client certificate", to_do)
    to_do = f"Compare with Kafka's listeners: the connection used {security.protocol}, as kafka.security says."
    if security.mechanism is None:
        to_do += " It may require a login: set kafka.security.mechanism, username and password_file."
    return Diagnosis(f"{kafka.bootstrap} accepts connections but does not answer ({_short(reasons)})", to_do)


def _check_rights(admin: AdminClient, kafka: KafkaAccess, topics: Sequence[str], timeout_s: float) -> Diagnosis | str:
    """Return an error if the login may use none of the existing topics, else a text on missing and barred ones."""
    request = admin.describe_topics(
        TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=timeout_s
    )
    barred, missing = [], []
    for name, future in request.items():
        try:
            operations = set(future.result().authorized_operations or ())
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                missing.append(name)
            elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                barred.append(name)
            else:
                return Diagnosis(f"{kafka.bootstrap} does not describe {name} ({error.args[0].str()})", "See its log.")
        else:
            if operations and not operations & {AclOperation.READ, AclOperation.WRITE, AclOperation.ALL}:
                barred.append(name)
    who = kafka.security.username or "this client"
    if barred and len(barred) == len(topics) - len(missing):
        to_do = "Give it the rights that docs/security.md lists."
        return Diagnosis(f"{who} may not read or write any topic, such as {barred[0]}", to_do)
    remark = f", {len(missing)} of {len(topics)} topics are missing" if missing else ", all topics exist"
    shown = ", ".join(barred[:SHOWN_MAX]) + (" ..." if len(barred) > SHOWN_MAX else "")
    return f"{remark}; {who} may not read or write {shown}" if barred else remark


def _short(reason: str) -> str:
    return " ".join(reason.split())[:200]
