"""Kafka's login reaches executors only over connections that Spark authenticates and encrypts."""

import stat
from pathlib import Path

import pytest

from regraft.infra.kafka.kafka_access import KafkaSecurity
from regraft.infra.local.secure_spark import SETTINGS, SparkSecretError, rpc_error, write_properties

LOGIN = KafkaSecurity(tls=True, mechanism="PLAIN", username="streaming")
MUTUAL_TLS = KafkaSecurity(tls=True, certificate_file=Path("own.pem"), key_file=Path("own.key"))
CLUSTER = "spark://far:7077"


def error(master: str, kafka: KafkaSecurity, **given: str) -> str:
    settings = {name.replace("_", "."): value for name, value in given.items()}
    return rpc_error(master, lambda name, default: settings.get(name, default), kafka)


@pytest.mark.parametrize("kafka", [LOGIN, MUTUAL_TLS], ids=["password", "private key"])
def test_a_cluster_without_a_secret_is_refused_where_kafka_has_secrets(kafka: KafkaSecurity) -> None:
    """The sentence names what is off and what to set; on one machine alone and without secrets nothing is needed."""
    for given, missing in (
        ({}, "spark.authenticate"),
        ({"spark_authenticate": "true"}, "spark.network.crypto.enabled"),
        ({"spark_network_crypto_enabled": "true"}, "spark.authenticate"),
    ):
        found = error(CLUSTER, kafka, **given)
        assert f"({missing} is false)" in found
        assert "spark.secret_file" in found
    assert not error("local[2]", kafka)
    assert not error(CLUSTER, KafkaSecurity(tls=True))
    assert not error(CLUSTER, kafka, spark_authenticate="true", spark_ssl_rpc_enabled="true")


def test_the_secret_of_a_cluster_is_in_a_file_of_this_user_only(tmp_path: Path) -> None:
    """Settings given to a session would show in its command line; those in the file suffice for every part."""
    secret, properties = tmp_path / "secret", tmp_path / "spark.conf"
    secret.write_text("a-secret-of-the-cluster\n")
    write_properties(secret, properties)
    lines = dict(line.split(" ", 1) for line in properties.read_text().splitlines())
    assert lines == {**SETTINGS, "spark.authenticate.secret": secret.read_text().strip()}
    assert not error(CLUSTER, LOGIN, **{name.replace(".", "_"): value for name, value in lines.items()})
    assert stat.S_IMODE(properties.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "text", ["", "short", "two words, long enough", "back\\slash-long-enough", "ümlaut-long-enough"]
)
def test_a_secret_that_spark_would_read_otherwise_is_refused_without_showing_it(text: str, tmp_path: Path) -> None:
    """In Spark's file a backslash or a space would change it silently, and all parts must have the same."""
    (tmp_path / "secret").write_text(text)
    with pytest.raises(SparkSecretError, match="holds no usable secret") as caught:
        write_properties(tmp_path / "secret", tmp_path / "spark.conf")
    assert not text or text not in str(caught.value)
    with pytest.raises(SparkSecretError, match="cannot be read"):
        write_properties(tmp_path / "none", tmp_path / "spark.conf")
