"""Identify callers and check their rights: orders need a token, and so does reading if the settings say so."""

from __future__ import annotations

import time

from regraft.dashboard.dashboard_settings import DashboardSettings
from regraft.dashboard.operator_tokens import READ_SCOPE, SCOPE, Operator, TokenRefusedError, check_token, read_secret
from regraft.dashboard.revoked_tokens import RevokedFileError, RevokedTokens


class AccessCheck:
    """The only place that grants access. Raises TokenSecretError if the secret cannot be used."""

    def __init__(self, settings: DashboardSettings) -> None:
        self._settings = settings
        self._secret = read_secret(settings)
        self._revoked = RevokedTokens(settings.revoked_path)
        # Browsers store cookies by host, not by port: two dashboards on one host must not overwrite each other's.
        self.cookie = f"regraft-{settings.namespace}"

    @property
    def can_order(self) -> bool:
        """Return True if there is a secret for tokens; without one the dashboard is read-only."""
        return self._secret is not None

    @property
    def login_to_read(self) -> bool:
        """Return True if reading also needs a token."""
        return self._settings.login_to_read

    def operator(self, authorization: str | None) -> Operator:
        """Return the holder of the Authorization header's token, who may give orders.

        Raises TokenRefusedError, or RevokedFileError if the file of revoked tokens cannot be read.
        """
        return self._holder(_bearer(authorization), "Orders need a token", (SCOPE,))

    def holder(self, authorization: str | None) -> Operator:
        """Return the holder of the header's token, who may order or read. Raises like :meth:`operator`."""
        return self._holder(_bearer(authorization), "Signing in needs a token", (SCOPE, READ_SCOPE))

    def reader(self, authorization: str | None, cookie: str | None) -> Operator | None:
        """Return the reader by header or cookie, or None if anybody may read. Raises like :meth:`operator`.

        A cookie suffices for reading only, because another site's page can make a browser send it.
        """
        if not self.login_to_read:
            return None
        return self._holder(_bearer(authorization) or cookie, "Reading needs a token", (SCOPE, READ_SCOPE))

    def is_still_valid(self, who: Operator | None) -> bool:
        """Return True if a reader's token is neither expired nor revoked; False if that cannot be checked."""
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
            text = f"{needs}: Authorization: Bearer TOKEN (`regraft dashboard token` issues one)."
            raise TokenRefusedError(401, "missing", text)
        return check_token(self._secret, token, settings.namespace, settings.token_hours_max, self._revoked, scopes)


def _bearer(authorization: str | None) -> str | None:
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
