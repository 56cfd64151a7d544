"""Register our schemas with a Confluent-compatible schema registry, if one is configured.

In: REGRAFT_SCHEMA_REGISTRY_URL, and where its password is stored. Out: fixed id -> the registry's id, for
``schemas.codec.use_wire_ids``. By default no registry is needed: the ``.avsc`` files with their fixed ids take its
place. Plain REST over urllib; the only module of this package that opens a connection.
"""

import base64
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from regraft.schemas.codec import use_wire_ids
from regraft.schemas.registry import Schema, schema_by_id, schema_ids_of
from regraft.schemas.topics import DEFAULT_NAMESPACE, NO_AGENT, TOPICS, topic_names

URL_VARIABLE = "REGRAFT_SCHEMA_REGISTRY_URL"
USERNAME_VARIABLE = "REGRAFT_SCHEMA_REGISTRY_USERNAME"
PASSWORD_FILE_VARIABLE = "REGRAFT_SCHEMA_REGISTRY_PASSWORD_FILE"  # The file that holds the password.
PASSWORD_VARIABLE_VARIABLE = "REGRAFT_SCHEMA_REGISTRY_PASSWORD_VARIABLE"  # The variable that holds the password.
TIMEOUT_S = 5.0
TRIES = 3
BACKOFF_S = 0.5
ANSWER_BYTES_MAX = 1 << 20
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


class RegistryError(RuntimeError):
    """The registry cannot be reached or refuses a schema; the message says which, and what to do."""


def use_registry(
    environ: Mapping[str, str] = os.environ, namespace: str = DEFAULT_NAMESPACE, agents: Iterable[str] = (NO_AGENT,)
) -> dict[int, int]:
    """Make the codec use the registry's ids if a URL is set, and return them; empty if none is set.

    Further variables give the user, and the file or variable that holds the password. Raises RegistryError.
    """
    url = environ.get(URL_VARIABLE, "").strip()
    wire_ids = register_schemas(url, namespace, agents, _login(url, environ)) if url else {}
    use_wire_ids(wire_ids)
    return wire_ids


def register_schemas(
    url: str,
    namespace: str = DEFAULT_NAMESPACE,
    agents: Iterable[str] = (NO_AGENT,),
    login: tuple[str, str] | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[int, int]:
    """Register every version of every topic's record, oldest first, and return fixed id -> the registry's id.

    The subject is the topic's name (one for each agent, if split by agent) plus ``-value``, as in Confluent's
    serialisers. Registering again returns the same ids. ``login`` is user and password, which may also be in the URL.
    Raises RegistryError if the registry cannot be reached or refuses a schema.
    """
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise RegistryError(f"the schema registry {_shown(url)!r} is not an http or https URL: correct {URL_VARIABLE}")
    ids: dict[int, int] = {}
    subjects = [(f"{name}-value", topic.record) for topic in TOPICS for name in topic_names(topic, namespace, agents)]
    for subject, record in subjects:
        for schema_id in schema_ids_of(record):
            request = _request(url, login, subject, schema_by_id(schema_id))
            ids[schema_id] = _registered_id(request, _shown(url), subject, timeout_s, sleep)
    return ids


def _login(url: str, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Return user and password if given outside the URL, else None. Raises RegistryError if they are inconsistent."""
    user = environ.get(USERNAME_VARIABLE, "")
    file, variable = environ.get(PASSWORD_FILE_VARIABLE, ""), environ.get(PASSWORD_VARIABLE_VARIABLE, "")
    if not (user or file or variable):
        return None
    if urllib.parse.urlsplit(url).username is not None:
        raise RegistryError(
            f"user and password are given both in {URL_VARIABLE} and separately: remove them from the URL"
        )
    if not user or bool(file) == bool(variable):
        raise RegistryError(
            f"a login to the schema registry needs {USERNAME_VARIABLE} and one of {PASSWORD_FILE_VARIABLE} and "
            f"{PASSWORD_VARIABLE_VARIABLE}: set these two, or none"
        )
    try:
        password = Path(file).read_text(encoding="utf-8-sig").rstrip("\r\n") if file else environ.get(variable, "")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise RegistryError(f"{PASSWORD_FILE_VARIABLE} {file} cannot be read ({reason}): check its name") from None
    if (
        not password or not password.isprintable()
    ):  # The value meant as a variable's name may be the secret itself: do not print it.
        place = f"{PASSWORD_FILE_VARIABLE} {file}" if file else f"the variable that {PASSWORD_VARIABLE_VARIABLE} names"
        raise RegistryError(f"{place} does not hold a password on one line: put it there, and nothing else")
    return user, password


def _request(url: str, login: tuple[str, str] | None, subject: str, schema: Schema) -> urllib.request.Request:
    parts = urllib.parse.urlsplit(url)
    address = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
    headers = {"Content-Type": CONTENT_TYPE, "Accept": CONTENT_TYPE}
    if login is None and parts.username is not None:
        login = urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or "")
    if login is not None:
        headers["Authorization"] = f"Basic {base64.b64encode(':'.join(login).encode()).decode()}"
    body = json.dumps({"schemaType": "AVRO", "schema": json.dumps(json.loads(schema.text))}).encode()
    path = f"{address}/subjects/{urllib.parse.quote(subject, safe='')}/versions"
    return urllib.request.Request(path, data=body, headers=headers, method="POST")


def _registered_id(
    request: urllib.request.Request,
    shown_url: str,
    subject: str,
    timeout_s: float,
    sleep: Callable[[float], None],
) -> int:
    """Request until there is an answer, at most ``TRIES`` times; refusals (4xx) are not retried."""
    reason = ""
    for attempt in range(TRIES):
        if attempt:
            sleep(BACKOFF_S * 2 ** (attempt - 1))
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                return int(json.loads(answer.read(ANSWER_BYTES_MAX))["id"])
        except urllib.error.HTTPError as error:
            reason = f"{error.code} {error.read(ANSWER_BYTES_MAX).decode(errors='replace').strip() or error.reason}"
            error.close()
            if error.code < 500:
                raise RegistryError(
                    f"the schema registry {shown_url} refuses {subject}: {reason}: check whether another "
                    "program owns the subject"
                ) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = f"{type(error).__name__}: {error}"
    raise RegistryError(
        f"the schema registry {shown_url} gave no id for {subject} in {TRIES} tries of {timeout_s:g} s ({reason}): "
        f"start it, correct {URL_VARIABLE}, or unset it to use the fixed ids"
    )


def _shown(url: str) -> str:
    """Return the URL without user and password."""
    parts = urllib.parse.urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
