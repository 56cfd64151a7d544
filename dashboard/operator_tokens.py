"""Tokens that let a person read or give orders: signed, with a name, an end, and one namespace they are for.

In: a secret and a name, or a token. Out: a token, or who holds it. What an operator may do does not belong here.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

import jwt

from regraft.dashboard.dashboard_settings import DashboardSettings, secret_faults
from regraft.infra.stack_error import StackError

ALGORITHM = "HS256"
ISSUER = "regraft"
SCOPE = "operate"
READ_SCOPE = "read"  # To look only, where reading needs a token (dashboard.login_to_read).
NAME_LENGTH_MAX = 100
ID_BYTES = 8
ID_FORM = re.compile(r"[0-9a-f]{16}")
TOKEN_LENGTH_MAX = 4096
LEEWAY_S = 5.0  # Clocks of the machine that made a token and of the one that checks it differ a little.


class TokenSecretError(StackError):
    """Reports what is wrong with the secret, or with what a token was asked for."""


class TokenRefusedError(Exception):
    """Reports why a token does not let its holder do what was asked for.

    ``status`` is the HTTP status: 401 for an invalid token, 403 for one without the right. ``why`` is one word
    for programs.
    """

    def __init__(self, status: int, why: str, text: str) -> None:
        super().__init__(text)
        self.status, self.why, self.text = status, why, text


@dataclass(frozen=True, slots=True)
class Operator:
    """Who holds a token, until when, and which token it is."""

    name: str
    until_ms: int
    token_id: str
    can_order: bool


def read_secret(settings: DashboardSettings) -> str | None:
    """Return the secret of the settings or of its file; None where neither is given. Raises TokenSecretError."""
    if settings.secret is not None:
        secret, where = settings.secret, "dashboard.secret"
    elif settings.secret_file is not None:
        secret, where = _read_file(settings.secret_file), f"the secret in {settings.secret_file}"
    else:
        return None
    for fault in secret_faults(secret, where):
        raise TokenSecretError(f"{fault[0].upper()}{fault[1:]}.")
    return secret


def make_token(
    secret: str, name: str, namespace: str, hours: float, hours_max: float, now_s: float, scope: str = SCOPE
) -> str:
    """Return a token for ``name``. Raises TokenSecretError for a name or a time that is no good."""
    name = name.strip()
    if not name or len(name) > NAME_LENGTH_MAX or not name.isprintable():
        raise TokenSecretError(
            f"A token belongs to a person: give a name of 1 to {NAME_LENGTH_MAX} printable characters."
        )
    if not 0 < hours <= hours_max:
        raise TokenSecretError(
            f"A token of {hours:g} hours: above 0 and at most {hours_max:g} (dashboard.token_hours_max)."
        )
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
    """Return the id of a token, given either; who gives a token need not have its secret. Raises TokenSecretError."""
    found = text.strip()
    if "." in found and len(found) <= TOKEN_LENGTH_MAX:
        try:
            found = str(jwt.decode(found, options={"verify_signature": False}).get("jti"))
        except jwt.InvalidTokenError as error:
            raise TokenSecretError(f"This is not a token ({error}): give a token, or the id of one.") from error
    if ID_FORM.fullmatch(found) is None:
        raise TokenSecretError(
            f"A token's id has {2 * ID_BYTES} hexadecimal digits: give one as printed by `regraft "
            f"dashboard token`, or the token itself."
        )
    return found


def check_token(
    secret: str,
    token: str,
    namespace: str,
    hours_max: float,
    revoked: Container[str] = frozenset(),
    scopes: Container[str] = (SCOPE,),
) -> Operator:
    """Return who holds the token, one of these scopes. Raises TokenRefusedError.

    Only our own algorithm is accepted, whatever the token claims; a token with too long a lifetime is refused though
    its signature is right, and so is one whose id is ``revoked``.
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
            f"The token is valid for longer than the {hours_max:g} hours that tokens may (token_hours_max).",
        )
    if claims["jti"] in revoked:
        raise TokenRefusedError(401, "revoked", "The token was revoked: ask for a new one.")
    return Operator(name, claims["exp"] * 1000, claims["jti"], can_order=scope == SCOPE)


def _read_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise TokenSecretError(
            f"dashboard.secret_file {path} cannot be read ({reason}): check its name and permissions, "
            "or leave it out for a read-only dashboard."
        ) from error
