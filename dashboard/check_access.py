"""Say who asks, and whether they may: orders need a token.

In: the header of a call. Out: the operator, or a TokenRefusedError for the caller. What a token is belongs to
``operator_tokens``, which of them were taken back to ``revoked_tokens``.
"""

from __future__ import annotations

from dashboard.dashboard_settings import DashboardSettings
from dashboard.operator_tokens import Operator, TokenRefusedError, check_token, read_secret
from dashboard.revoked_tokens import RevokedTokens


class AccessCheck:
    """The one place that lets anybody in. Raises TokenSecretError for a bad secret."""

    def __init__(self, settings: DashboardSettings) -> None:
        self._settings = settings
        self._secret = read_secret(settings)
        self._revoked = RevokedTokens(settings.revoked_path)

    @property
    def can_order(self) -> bool:
        """Tell whether there are tokens at all; without a secret the dashboard is read-only."""
        return self._secret is not None

    def operator(self, authorization: str | None) -> Operator:
        """Return who holds the token of an Authorization header. Raises TokenRefusedError, RevokedFileError."""
        settings = self._settings
        if self._secret is None:
            text = "This dashboard is read-only: it has no secret (dashboard.secret or dashboard.secret_file)."
            raise TokenRefusedError(403, "read_only", text)
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            text = "Orders need a token: Authorization: Bearer TOKEN (`regraft dashboard token` makes one)."
            raise TokenRefusedError(401, "missing", text)
        return check_token(self._secret, token.strip(), settings.namespace, settings.token_hours_max, self._revoked)
