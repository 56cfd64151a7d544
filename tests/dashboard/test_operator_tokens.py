"""Tokens: accepted only if signed with this dashboard's secret, for this namespace and scope, and not for too long."""

import base64
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest

from regraft.dashboard.dashboard_settings import DashboardSettings
from regraft.dashboard.operator_tokens import (
    TokenRefusedError,
    TokenSecretError,
    check_token,
    id_of,
    make_token,
    read_secret,
)

SECRET = "k" * 40
HOURS_MAX = 24.0


def claims(**other: Any) -> dict[str, Any]:
    now_s = int(time.time())
    good = {"iss": "regraft", "aud": "lab", "sub": "Ana", "scope": "operate", "iat": now_s, "exp": now_s + 3600}
    good |= {"jti": "0123456789abcdef"}
    return {name: value for name, value in {**good, **other}.items() if value is not None}


def refused(token: str) -> TokenRefusedError:
    with pytest.raises(TokenRefusedError) as caught:
        check_token(SECRET, token, "lab", HOURS_MAX)
    return caught.value


def test_a_token_names_its_holder_and_its_expiry() -> None:
    """A token that was made is read with the same values."""
    now_s = time.time()
    operator = check_token(SECRET, make_token(SECRET, " Ana Silva ", "lab", 8, HOURS_MAX, now_s), "lab", HOURS_MAX)
    assert (operator.name, operator.until_ms) == ("Ana Silva", int(now_s + 8 * 3600) * 1000)


def test_a_forged_token_is_refused() -> None:
    """Another key, a changed name, another algorithm with the same key: all are refused."""
    assert refused(jwt.encode(claims(), "x" * 40, algorithm="HS256")).why == "forged"
    assert refused(jwt.encode(claims(), SECRET * 2, algorithm="HS512")).why == "forged"
    head, body, signature = jwt.encode(claims(), SECRET, algorithm="HS256").split(".")
    other = json.loads(base64.urlsafe_b64decode(body + "==")) | {"sub": "Eve"}
    changed = base64.urlsafe_b64encode(json.dumps(other).encode()).decode().rstrip("=")
    assert (refused(f"{head}.{changed}.{signature}").status, refused(f"{head}.{changed}.{signature}").why) == (
        401,
        "forged",
    )


def test_a_token_that_declares_no_signature_is_refused() -> None:
    """The algorithm none is not accepted, with or without something in place of the signature."""
    unsigned = jwt.encode(claims(), None, algorithm="none")
    assert (refused(unsigned).status, refused(unsigned).why) == (401, "forged")
    assert refused(unsigned + "c2ln").status == 401


@pytest.mark.parametrize(
    ("other", "status", "why"),
    [
        ({"exp": int(time.time()) - 60}, 401, "expired"),
        ({"exp": None}, 401, "malformed"),
        ({"sub": None}, 401, "malformed"),
        ({"jti": None}, 401, "malformed"),
        ({"iat": None}, 401, "malformed"),
        ({"iss": "somebody"}, 401, "malformed"),
        ({"iat": int(time.time()) + 86_400, "exp": int(time.time()) + 90_000}, 401, "malformed"),
        ({"scope": "read"}, 403, "scope"),
        ({"scope": ["operate"]}, 403, "scope"),
        ({"aud": "production"}, 403, "namespace"),
        ({"exp": int(time.time()) + 30 * 24 * 3600}, 403, "lifetime"),
    ],
)
def test_the_error_of_a_token_is_reported(other: dict[str, Any], status: int, why: str) -> None:
    """Each error has its status and its code."""
    error = refused(jwt.encode(claims(**other), SECRET, algorithm="HS256"))
    assert (error.status, error.why) == (status, why)


def test_only_the_revoked_token_is_refused() -> None:
    """Two tokens of the same person are distinguished by their ids; both the token and its text reveal the id."""
    first, second = (make_token(SECRET, "Ana", "lab", 1, HOURS_MAX, time.time()) for _ in range(2))
    revoked = {id_of(first)}
    with pytest.raises(TokenRefusedError, match="was revoked"):
        check_token(SECRET, first, "lab", HOURS_MAX, revoked)
    assert check_token(SECRET, second, "lab", HOURS_MAX, revoked).token_id == id_of(second)
    assert id_of(f" {id_of(second)}\n") == id_of(second)


@pytest.mark.parametrize("text", ["", "Ana", "0123", "0123456789ABCDEF", "a.b.c", "x" * 5000])
def test_text_without_an_id_cannot_be_revoked(text: str) -> None:
    """A mistyped id is reported, or somebody would believe that the token is revoked."""
    with pytest.raises(TokenSecretError, match="token"):
        id_of(text)


@pytest.mark.parametrize("token", ["", "abc", "a.b.c", "é" * 10, "x" * 5000])
def test_text_that_is_not_a_token_is_refused(token: str) -> None:
    """Clients may send any text."""
    assert (refused(token).status, refused(token).why) == (401, "malformed")


@pytest.mark.parametrize(("name", "hours"), [("", 8), ("a\nb", 8), ("n" * 101, 8), ("Ana", 0), ("Ana", 25)])
def test_a_token_needs_a_holder_and_an_expiry(name: str, hours: float) -> None:
    """A token is for a printable name and a bounded time."""
    with pytest.raises(TokenSecretError):
        make_token(SECRET, name, "lab", hours, HOURS_MAX, time.time())


def settings(**given: Any) -> DashboardSettings:
    return DashboardSettings(bootstrap="none", inventory_path=Path("none"), **given)


def test_the_secret_comes_from_the_settings_or_a_file(tmp_path: Path) -> None:
    """Spaces around it in the file do not count; without either setting there is no secret."""
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    assert read_secret(settings(secret_file=file)) == SECRET == read_secret(settings(secret=SECRET))
    assert read_secret(settings()) is None


def test_a_bad_secret_is_reported_and_never_shown(tmp_path: Path) -> None:
    """Too short, or in a file that does not exist: a message without the secret in it."""
    file = tmp_path / "secret"
    with pytest.raises(TokenSecretError, match="cannot be read"):
        read_secret(settings(secret_file=file))
    file.write_text("hunter2")
    with pytest.raises(TokenSecretError, match="7 bytes: at least 32") as caught:
        read_secret(settings(secret_file=file))
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in " ".join(settings(secret="hunter2").errors())
    assert SECRET not in repr(settings(secret=SECRET))


def test_settings_report_all_their_errors() -> None:
    """Every wrong value has its message."""
    wrong = settings(
        port=70_000, host_names=(), secret=SECRET, secret_file=Path("secret"),
        trusted_proxies=("*", "10.0.0.1/8", "10.0.0.0/8"),
    )  # fmt: skip
    assert len(wrong.errors()) == 5
    assert settings().errors() == []
