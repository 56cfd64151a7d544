"""The optional schema registry, against a small one on the loopback."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from regraft.schemas.codec import decode, encode
from regraft.schemas.registry import SCHEMAS, schema_by_id, schema_ids_of
from regraft.schemas.remote_registry import (
    URL_VARIABLE,
    USERNAME_VARIABLE,
    RegistryError,
    register_schemas,
    use_registry,
)
from regraft.schemas.telemetry import TelemetryBatch
from regraft.schemas.topics import TOPICS
from tests.schemas.fake_registry import FakeRegistry, running_registry


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with running_registry() as running:
        yield running


def no_sleep(_: float) -> None:
    pass


def test_every_schema_is_registered_under_its_topic(registry: FakeRegistry) -> None:
    """Each topic's subject gets all versions of its record, oldest first, and every fixed id has a remote one."""
    ids = register_schemas(registry.url, "regraft")
    assert set(ids) == set(SCHEMAS)
    assert len(set(ids.values())) == len(ids)
    assert registry.subjects == {
        f"regraft.{topic.suffix}-value": [schema_by_id(i).record for i in schema_ids_of(topic.record)]
        for topic in TOPICS
    }
    assert register_schemas(registry.url, "regraft") == ids
    assert register_schemas(registry.url, "regraft", ("east", "west")) == ids
    assert {name for name in registry.subjects if name.endswith(".east-value")} == {
        f"regraft.{topic.suffix}.east-value" for topic in TOPICS if topic.is_by_agent
    }


def test_the_codec_writes_the_registrys_ids(registry: FakeRegistry) -> None:
    """If the variable is set, records carry the registry's ids; otherwise the fixed ones."""
    batch = TelemetryBatch("b", 1, 2, 3, 4)
    fixed = encode(batch)
    ids = use_registry({URL_VARIABLE: registry.url})
    assert encode(batch)[:5] == b"\x00" + ids[103].to_bytes(4, "big")
    assert decode(encode(batch), TelemetryBatch) == batch
    assert use_registry({}) == {}
    assert encode(batch) == fixed


def test_requests_are_repeated_while_a_registry_starts(registry: FakeRegistry) -> None:
    """Two server errors are waited out."""
    registry.failures = 2
    assert set(register_schemas(registry.url, sleep=no_sleep)) == set(SCHEMAS)


def test_an_unavailable_registry_gives_one_sentence(registry: FakeRegistry) -> None:
    """Retries are bounded, and the message names the address, the reason and what to do, but no password."""
    registry.failures = 99
    with pytest.raises(RegistryError, match=r"no id for regraft.telemetry-value in 3 tries .*503.*unset it") as caught:
        register_schemas(f"http://user:secret@127.0.0.1:{registry.port}", sleep=no_sleep)
    assert registry.requests == 3
    assert "secret" not in str(caught.value)
    with pytest.raises(RegistryError, match="gave no id"):
        register_schemas("http://127.0.0.1:9", timeout_s=0.2, sleep=no_sleep)


def test_a_refused_schema_is_not_sent_again(registry: FakeRegistry) -> None:
    """An incompatible schema is reported at once, with the registry's reason."""
    registry.refusal = "Schema being registered is incompatible"
    with pytest.raises(RegistryError, match=r"409 .*incompatible"):
        register_schemas(registry.url, sleep=no_sleep)
    assert registry.requests == 1


def test_user_and_password_are_sent_in_the_header(registry: FakeRegistry) -> None:
    """A registry behind a login gets the URL's user and password."""
    register_schemas(f"http://user:p%40ss@127.0.0.1:{registry.port}")
    assert base64.b64decode(registry.authorization.removeprefix("Basic ")) == b"user:p@ss"


def test_a_wrong_url_is_refused() -> None:
    """Schemes other than http and https are refused before any connection is tried."""
    with pytest.raises(RegistryError, match="not an http or https URL"):
        register_schemas("file:///etc/hosts")


@pytest.mark.parametrize("place", ["FILE", "VARIABLE"])
def test_the_password_may_be_outside_the_url(registry: FakeRegistry, tmp_path: Path, place: str) -> None:
    """It may be in a file, or in any variable."""
    (tmp_path / "password").write_text("p@ss:w\n")
    named = {"FILE": str(tmp_path / "password"), "VARIABLE": "SECRET"}[place]
    user = {USERNAME_VARIABLE: "ana", f"REGRAFT_SCHEMA_REGISTRY_PASSWORD_{place}": named, "SECRET": "p@ss:w"}
    use_registry({URL_VARIABLE: registry.url, **user})
    assert base64.b64decode(registry.authorization.removeprefix("Basic ")) == b"ana:p@ss:w"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"USERNAME": "ana"}, "needs REGRAFT_SCHEMA_REGISTRY_USERNAME and one of"),
        ({"PASSWORD_FILE": "/none"}, "needs REGRAFT_SCHEMA_REGISTRY_USERNAME and one of"),
        ({"USERNAME": "ana", "PASSWORD_FILE": "/none", "PASSWORD_VARIABLE": "HOME"}, "one of"),
        ({"USERNAME": "ana", "PASSWORD_FILE": "/none"}, "/none cannot be read"),
        ({"USERNAME": "ana", "PASSWORD_VARIABLE": "hunter2"}, "PASSWORD_VARIABLE names does not hold a password"),
        ({"USERNAME": "ana", "PASSWORD_FILE": "/none", "URL": "http://bo:hunter2@h"}, "remove them from the URL"),
    ],
)
def test_an_invalid_login_is_refused(given: dict[str, str], why: str) -> None:
    """It is refused before any request is sent, and the message contains no secret."""
    variables = {URL_VARIABLE: "http://h"} | {f"REGRAFT_SCHEMA_REGISTRY_{name}": text for name, text in given.items()}
    with pytest.raises(RegistryError, match=why) as raised:
        use_registry(variables)
    assert "hunter2" not in str(raised.value)
