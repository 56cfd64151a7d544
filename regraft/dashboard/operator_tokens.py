"""Signed tokens that let an operator read or give orders, with a name, an expiry, and one namespace.

In: a secret and a name, or a token. Out: a token, or its holder. What an operator may do does not belong here.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

import jwt

from regraft.dashboard.dashboard_settings import DashboardSettings, secret_errors
from regraft.infra.process.stack_error import StackError

ALGORITHM = "HS256"
ISSUER = "regraft"
SCOPE = "operate"
READ_SCOPE = "read"  # For reading only, if reading needs a token (dashboard.login_to_read).
NAME_LENGTH_MAX = 100
ID_BYTES = 8
ID_FORM = re.compile(r"[0-9a-f]{16}")
TOKEN_LENGTH_MAX = 4096
LEEWAY_S = 5.0  # The clocks of the machines that make and check a token may differ a little.


class TokenSecretError(StackError):
    """The secret cannot be used, or a token cannot be made with these values; the message says why."""


class TokenRefusedError(Exception):
    """A token does not permit the request; the message says why.

    ``status`` is the HTTP status: 401 if the token is invalid, 403 if it lacks the right. ``why`` is one word for
    programs.
    """

    def __init__(self, status: int, why: str, text: str) -> None:
        super().__init__(text)
        self.status, self.why, self.text = status, why, text


@dataclass(frozen=True, slots=True)
class Operator:
    """The holder of a token, its expiry, and its id."""

    name: str
    until_ms: int
    token_id: str
    can_order: bool


def read_secret(settings: DashboardSettings) -> str | None:
    """Return the secret from the settings or its file, or None if neither is given. Raises TokenSecretError."""
    if settings.secret is not None:
        secret, where = settings.secret, "dashboard.secret"
    elif settings.secret_file is not None:
        secret, where = _read_file(settings.secret_file), f"the secret in {settings.secret_file}"
    else:
        return None
    for error in secret_errors(secret, where):
        raise TokenSecretError(f"{error[0].upper()}{error[1:]}.")
    return secret


def make_token(
    secret: str, name: str, namespace: str, hours: float, hours_max: float, now_s: float, scope: str = SCOPE
) -> str:
    """Return a token for ``name``. Raises TokenSecretError if the name or the lifetime is invalid."""
    name = name.strip()
    if not name or len(name) > NAME_LENGTH_MAX or not name.isprintable():
        raise TokenSecretError(
            f"A token belongs to an operator: give a name of 1 to {NAME_LENGTH_MAX} printable characters."
        )
    if not 0 < hours <= hours_max:
        raise TokenSecretError(f"A token of {hours:g} hours: above 0 and at most {hours_max:g}.")
    claims = {
        "iss": ISSUER,
        "aud": namespace,
        "sub": name,
        "scope": scope,
        "jti": secrets.token_hex(ID_BYTES),
        "iat": int(now_s),
        "exp": int(now_s + hours * 3600),
    }
    return jwt.encode(claims, secret, algorithm=ALGORITHM)


def id_of(text: str) -> str:
    """Return the id of a token, given the id or the token itself, whose signature is not checked.

    Raises TokenSecretError if it is neither.
    """
    token = text.strip()
    if "." in token and len(token) <= TOKEN_LENGTH_MAX:
        try:
            token = str(jwt.decode(token, options={"verify_signature": False}).get("jti"))
        except jwt.InvalidTokenError as error:
            raise TokenSecretError(f"This is not a token ({error}): give a token, or the id of one.") from error
    if ID_FORM.fullmatch(token) is None:
        raise TokenSecretError(
            f"A token's id has {2 * ID_BYTES} hexadecimal digits: give one as printed by `regraft "
            f"dashboard token`, or the token itself."
        )
    return token


def check_token(
    secret: str,
    token: str,
    namespace: str,
    hours_max: float,
    revoked: Container[str] = frozenset(),
    scopes: Container[str] = (SCOPE,),
) -> Operator:
    """Return the holder of a valid token with one of ``scopes``. Raises TokenRefusedError if it is not one.

    Only our algorithm is accepted, whatever the token claims. A token with too long a lifetime is refused even if its
    signature is valid, and so is one whose id is in ``revoked``.
    """
    if len(token) > TOKEN_LENGTH_MAX:
        raise TokenRefusedError(401, "malformed", f"The token is longer than {TOKEN_LENGTH_MAX} characters.")
    try:
        claims = jwt.decode(
            token,
            secret,
            algorithms=[ALGORITHM],
            issuer=ISSUER,
            audience=namespace,
            leeway=LEEWAY_S,
            options={"require": ["exp", "iat", "sub", "scope", "aud", "iss", "jti"]},
        )
    except jwt.ExpiredSignatureError as error:
        raise TokenRefusedError(401, "expired", "The token has expired: ask for a new one.") from error
    except jwt.InvalidAudienceError as error:
        raise TokenRefusedError(403, "namespace", f"The token is not for the namespace {namespace}.") from error
    except (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError) as error:
        raise TokenRefusedError(401, "forged", "The token was not signed with this dashboard's secret.") from error
    except jwt.InvalidTokenError as error:
        raise TokenRefusedError(401, "malformed", f"The token cannot be used: {error}.") from error
    name, scope = claims["sub"], claims["scope"]
    if scope not in scopes:
        raise TokenRefusedError(403, "scope", f"The token is for {scope!r}, but orders need {SCOPE!r}.")
    if claims["exp"] - claims["iat"] > hours_max * 3600 + 1:
        raise TokenRefusedError(
            403,
            "lifetime",
            f"The token is valid for longer than {hours_max:g} hours, the maximum.",
        )
    if claims["jti"] in revoked:
        raise TokenRefusedError(401, "revoked", "The token was revoked: ask for a new one.")
    return Operator(name, claims["exp"] * 1000, claims["jti"], can_order=scope == SCOPE)


def _read_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise TokenSecretError(
            f"dashboard.secret_file {path} cannot be read ({reason}): check its name and permissions, "
            "or leave it out for a read-only dashboard."
        ) from error
