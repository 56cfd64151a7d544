"""TLS and SASL of Kafka's clients: the same settings for librdkafka and for Java, and which are refused."""

from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from regraft.infra.kafka.kafka_access import KafkaAccess, KafkaSecurity
from regraft.infra.local.make_certificates import LocalAuthority

AWKWARD = 'p"a\\ss;=word ü'


@pytest.fixture
def login(tmp_path: Path) -> KafkaSecurity:
    """Return SCRAM over TLS with a password that needs quoting."""
    password = tmp_path / "password"
    password.write_text(AWKWARD + "\n", encoding="utf-8")
    return KafkaSecurity(
        ca_file=LocalAuthority(tmp_path).ca_file,
        tls=True,
        mechanism="SCRAM-SHA-512",
        username="regraft",
        password_file=password,
    )


@pytest.mark.parametrize(
    ("given", "protocol"),
    [
        ({}, "PLAINTEXT"),
        ({"tls": True}, "SSL"),
        ({"tls": True, "mechanism": "PLAIN"}, "SASL_SSL"),
        ({"mechanism": "PLAIN", "allow_unencrypted_login": True}, "SASL_PLAINTEXT"),
    ],
)
def test_the_protocol_follows_from_tls_and_mechanism(given: dict[str, object], protocol: str) -> None:
    """It need not be configured separately."""
    assert KafkaSecurity(**given).protocol == protocol  # type: ignore[arg-type]


def test_librdkafka_gets_scram_over_tls(login: KafkaSecurity) -> None:
    """Host names are verified, and the password is passed on unchanged."""
    assert KafkaAccess("kafka:9093", security=login).client_options() == {
        "bootstrap.servers": "kafka:9093",
        "client.id": "regraft",
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(login.ca_file),
        "ssl.endpoint.identification.algorithm": "https",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "regraft",
        "sasl.password": AWKWARD,
    }


def test_spark_gets_the_same_settings_in_javas_form(login: KafkaSecurity) -> None:
    """The password is quoted for JAAS, the authority is passed as text."""
    assert login.ca_file is not None
    assert login.spark_options() == {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.endpoint.identification.algorithm": "https",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": login.ca_file.read_text(),
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="regraft" password="p\\"a\\\\ss;=word ü";'
        ),
    }


def test_a_key_reaches_java_in_pkcs_8(tmp_path: Path) -> None:
    """Java only reads PKCS #8, OpenSSL any form; the key's password is not passed on."""
    authority = LocalAuthority(tmp_path)
    client = authority.issue("client")
    key = serialization.load_pem_private_key(client.key_file.read_bytes(), None)
    form, locked = serialization.PrivateFormat.TraditionalOpenSSL, serialization.BestAvailableEncryption(b"opens it")
    client.key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, locked))
    (tmp_path / "password").write_text("opens it")
    security = KafkaSecurity(
        authority.ca_file, client.certificate_file, client.key_file, tmp_path / "password", tls=True
    )
    assert security.errors() == []
    assert security.client_options()["ssl.key.password"] == "opens it"
    options = security.spark_options()
    assert options["kafka.ssl.keystore.key"].startswith("-----BEGIN PRIVATE KEY-----")
    assert options["kafka.ssl.keystore.certificate.chain"] == client.certificate_file.read_text()
    assert "opens it" not in str(options)


def test_either_library_requests_tokens(login: KafkaSecurity) -> None:
    """Client id and secret are username and password; both libraries trust the same authority for the token."""
    security = replace(login, mechanism="OAUTHBEARER", token_url="https://id/token", token_scope="kafka")
    assert security.errors() == []
    options = security.client_options()
    assert options["sasl.oauthbearer.client.secret"] == AWKWARD
    assert options["https.ca.location"] == options["ssl.ca.location"] == str(login.ca_file)
    assert "sasl.password" not in options
    jaas = security.spark_options()["kafka.sasl.jaas.config"]
    for part in ('clientId="regraft"', 'scope="kafka"', f'ssl.truststore.location="{login.ca_file}"'):
        assert part in jaas


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"mechanism": "GSSAPI"}, "mechanism is 'GSSAPI': use one of PLAIN, "),
        ({"mechanism": None}, "username is given without a mechanism"),
        ({"username": ""}, "SCRAM-SHA-512 without username"),
        ({"password_file": None}, "SCRAM-SHA-512 without password_file: give it"),
        ({"tls": False, "ca_file": None}, "mechanism is SCRAM-SHA-512 without tls"),
        ({"tls": False, "allow_unencrypted_login": True}, "ca_file is given, but tls is false"),
        ({"tls": False, "ca_file": None, "allow_unencrypted_login": True, "check_host_name": False}, "check_host_name"),
        ({"token_url": "https://id/token"}, "token_url is given with SCRAM-SHA-512"),
        ({"mechanism": "OAUTHBEARER"}, "token_url is None: OAUTHBEARER needs an https address"),
        ({"mechanism": "OAUTHBEARER", "token_url": "http://id/token"}, "use https"),
        ({"mechanism": "OAUTHBEARER", "token_url": "https://me:secret@id/"}, "token_url holds credentials"),
    ],
)
def test_combinations_that_cannot_work_are_refused(
    login: KafkaSecurity, changed: dict[str, object], reason: str
) -> None:
    """Each error is one sentence, and contains no secret."""
    errors = replace(login, **changed).errors()  # type: ignore[arg-type]
    assert sum(reason in error for error in errors) == 1, errors
    assert "secret@" not in str(errors)
    assert AWKWARD not in str(errors)


def test_a_login_without_tls_must_be_explicit(login: KafkaSecurity) -> None:
    """A password that the network can read must not be sent by mistake."""
    assert replace(login, ca_file=None, tls=False, allow_unencrypted_login=True).errors() == []


def test_no_representation_holds_a_secret(login: KafkaSecurity) -> None:
    """Logs and errors show settings: these hold the location of a secret, not the secret."""
    assert AWKWARD not in repr(KafkaAccess("kafka:9093", security=login))
