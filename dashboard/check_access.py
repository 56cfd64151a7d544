"""Identify callers and check their rights: orders need a token, and so does reading where the settings say so.

In: the header or cookie of a call. Out: the holder of its token, or a TokenRefusedError for the caller. Tokens belong
to ``operator_tokens``, their revocation to ``revoked_tokens``.
"""

from __future__ import annotations

import time

from regraft.dashboard.dashboard_settings import DashboardSettings
from regraft.dashboard.operator_tokens import READ_SCOPE, SCOPE, Operator, TokenRefusedError, check_token, read_secret
from regraft.dashboard.revoked_tokens import RevokedFileError, RevokedTokens


class AccessCheck:
    """The one place that lets anybody in. Raises TokenSecretError for a bad secret."""

    def __init__(self, settings: DashboardSettings) -> None:
        self._settings = settings
        self._secret = read_secret(settings)
        self._revoked = RevokedTokens(settings.revoked_path)
        # Browsers keep cookies by host, not by port: two dashboards of one host must not overwrite each other's.
        self.cookie = f"regraft-{settings.namespace}"

    @property
    def can_order(self) -> bool:
        """Return True if there are tokens at all; without a secret the dashboard is read-only."""
        return self._secret is not None

    @property
    def login_to_read(self) -> bool:
        """Return True if reading needs a token, too."""
        return self._settings.login_to_read

    def operator(self, authorization: str | None) -> Operator:
        """Return the name that may order by this Authorization header. Raises TokenRefusedError, RevokedFileError."""
        return self._holder(_bearer(authorization), "Orders need a token", (SCOPE,))

    def holder(self, authorization: str | None) -> Operator:
        """Return who signs in by an Authorization header, to order or to read. Raises as ``operator``."""
        return self._holder(_bearer(authorization), "Signing in needs a token", (SCOPE, READ_SCOPE))

    def reader(self, authorization: str | None, cookie: str | None) -> Operator | None:
        """Return who reads, by header or cookie; None where anybody may. Raises as ``operator``.

        A cookie is enough for reading only: a page of somebody else can make a browser send it.
        """
        if not self.login_to_read:
            return None
        return self._holder(_bearer(authorization) or cookie, "Reading needs a token", (SCOPE, READ_SCOPE))

    def still_holds(self, who: Operator | None) -> bool:
        """Return True if a reader's token has neither expired nor been revoked since."""
        try:
            return who is None or (time.time() * 1000 < who.until_ms and who.token_id not in self._revoked)
        except RevokedFileError:
            return False

    def _holder(self, token: str | None, needs: str, scopes: tuple[str, ...]) -> Operator:
        settings = self._settings
        if self._secret is None:
            text = "This dashboard is read-only: it has no secret (dashboard.secret or dashboard.secret_file)."
            raise TokenRefusedError(403, "read_only", text)
        if not token:
            text = f"{needs}: Authorization: Bearer TOKEN (`regraft dashboard token` makes one)."
            raise TokenRefusedError(401, "missing", text)
        return check_token(self._secret, token, settings.namespace, settings.token_hours_max, self._revoked, scopes)


def _bearer(authorization: str | None) -> str | None:
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
