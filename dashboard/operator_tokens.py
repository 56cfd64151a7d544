"""Tokens that let a person give orders: signed, with a name, an end, and one namespace they are for.

In: a secret and a name, or a token. Out: a token, or who holds it. What an operator may do does not belong here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import jwt

from dashboard.dashboard_settings import DashboardSettings, secret_faults
from infra.stack_error import StackError

ALGORITHM = "HS256"
ISSUER = "regraft"
SCOPE = "operate"
NAME_LENGTH_MAX = 100
TOKEN_LENGTH_MAX = 4096
LEEWAY_S = 5.0  # Clocks of the machine that made a token and of the one that checks it differ a little.


class TokenSecretError(StackError):
    """Say what is wrong with the secret, or with what a token was asked for."""


class TokenRefusedError(Exception):
    """Say why a token does not let its holder give orders.

    ``status`` is the HTTP status: 401 for a token that is none, 403 for one that is not for this. ``why`` is one word
    for programs.
    """

    def __init__(self, status: int, why: str, text: str) -> None:
        super().__init__(text)
        self.status, self.why, self.text = status, why, text


@dataclass(frozen=True, slots=True)
class Operator:
    """Who holds a token, and until when."""

    name: str
    until_ms: int


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


def make_token(secret: str, name: str, namespace: str, hours: float, hours_max: float, now_s: float) -> str:
    """Return a token for ``name``. Raises TokenSecretError for a name or a time that is no good."""
    name = name.strip()
    if not name or len(name) > NAME_LENGTH_MAX or not name.isprintable():
        raise TokenSecretError(f"A token is for somebody: give a name of 1 to {NAME_LENGTH_MAX} printable characters.")
    if not 0 < hours <= hours_max:
        raise TokenSecretError(
            f"A token of {hours:g} hours: above 0 and at most {hours_max:g} (dashboard.token_hours_max)."
        )
    claims = {
        "iss": ISSUER,
        "aud": namespace,
        "sub": name,
        "scope": SCOPE,
        "iat": int(now_s),
        "exp": int(now_s + hours * 3600),
    }
    return jwt.encode(claims, secret, algorithm=ALGORITHM)


def check_token(secret: str, token: str, namespace: str, hours_max: float) -> Operator:
    """Return who holds the token. Raises TokenRefusedError.

    Only our own algorithm is taken, whatever the token says of itself; one that lives longer than tokens may is refused
    though its signature is right.
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
            options={"require": ["exp", "iat", "sub", "scope", "aud", "iss"]},
        )
    except jwt.ExpiredSignatureError as error:
        raise TokenRefusedError(401, "expired", "The token has expired: ask for another one.") from error
    except jwt.InvalidAudienceError as error:
        raise TokenRefusedError(403, "namespace", f"The token is not for the namespace {namespace}.") from error
    except (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError) as error:
        raise TokenRefusedError(401, "forged", "The token was not signed with this dashboard's secret.") from error
    except jwt.InvalidTokenError as error:
        raise TokenRefusedError(401, "malformed", f"The token cannot be used: {error}.") from error
    name, scope = claims["sub"], claims["scope"]
    if scope != SCOPE:
        raise TokenRefusedError(403, "scope", f"The token is for {scope!r}, orders need {SCOPE!r}.")
    if claims["exp"] - claims["iat"] > hours_max * 3600 + 1:
        raise TokenRefusedError(
            403, "lifetime", f"The token lives longer than the {hours_max:g} hours that tokens may (token_hours_max)."
        )
    return Operator(name, claims["exp"] * 1000)


def _read_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise TokenSecretError(
            f"dashboard.secret_file {path} cannot be read ({reason}): check its name and permissions, "
            "or leave it out for a read-only dashboard."
        ) from error
