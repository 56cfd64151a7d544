"""The routes for signing in and out, and the check before reading.

In: access rights (``check_access``). Out: routes. They set a cookie for reading, because a browser cannot send a header
with its event stream; orders never accept it.
"""

import time
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Request, Response

from regraft.dashboard.check_access import AccessCheck
from regraft.dashboard.operator_tokens import Operator, TokenRefusedError

COOKIE_PATH = "/api"


def reader_of(access: AccessCheck) -> Callable[..., Operator | None]:
    """Return the FastAPI dependency that admits and identifies readers."""

    def reader(request: Request, authorization: Annotated[str | None, Header()] = None) -> Operator | None:
        return access.reader(authorization, request.cookies.get(access.cookie))

    return reader


def add_sessions(app: FastAPI, access: AccessCheck) -> None:
    """Add the routes to the application."""
    reader = reader_of(access)

    def holder(authorization: Annotated[str | None, Header()] = None) -> Operator:
        return access.holder(authorization)

    @app.get("/api/access")
    async def may_read(request: Request) -> dict[str, bool]:
        """Report whether reading needs a token, and whether this browser may read."""
        try:
            reader(request)
        except TokenRefusedError:
            return {"login_to_read": access.login_to_read, "may_read": False}
        return {"login_to_read": access.login_to_read, "may_read": True}

    @app.get("/api/session")
    async def session(who: Annotated[Operator, Depends(holder)]) -> dict[str, Any]:
        """Return the token's holder, its expiry, and whether it permits orders."""
        return {"by": who.name, "until_ms": who.until_ms, "can_order": who.can_order}

    @app.post("/api/session")
    async def sign_in(
        request: Request,
        response: Response,
        who: Annotated[Operator, Depends(holder)],
        authorization: Annotated[str, Header()],
    ) -> dict[str, Any]:
        """Return the same and, if reading needs a token, let this browser read until the token expires."""
        if access.login_to_read:
            response.set_cookie(
                access.cookie,
                authorization.partition(" ")[2].strip(),
                max_age=max(int(who.until_ms / 1000 - time.time()), 0),
                path=COOKIE_PATH,
                secure=request.url.scheme == "https",
                httponly=True,
                samesite="strict",
            )
        return await session(who)

    @app.delete("/api/session", status_code=204)
    async def sign_out(response: Response) -> None:
        """End this browser's permission to read."""
        response.delete_cookie(access.cookie, path=COOKIE_PATH)
