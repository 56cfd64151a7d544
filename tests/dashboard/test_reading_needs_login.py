"""If reading needs a token: who sees nothing, who may read, who may give orders, and when access ends."""

import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from regraft.dashboard.operator_tokens import READ_SCOPE, SCOPE, id_of, make_token
from regraft.dashboard.revoked_tokens import revoke_token
from regraft.infra.local.make_certificates import LocalAuthority
from tests.dashboard.served_dashboard import SECRET, ServedDashboard, served_dashboard
from tests.dashboard.test_operator_tokens import settings
from tests.dashboard.test_run_dashboard import Stream
from tests.dashboard.view_documents import publish, written_document
from tests.wait_until import wait_until

pytestmark = pytest.mark.stack

COOKIE = "regraft-regraft"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDashboard]:
    with served_dashboard(tmp_path_factory.mktemp("login"), login_to_read=True) as dashboard:
        publish(dashboard.redis_url, written_document())
        dashboard.wait_view("live")
        yield dashboard


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_without_a_token_no_broker_is_shown(served: ServedDashboard) -> None:
    """State and stream are refused with a sentence; the empty page, metrics and health are open."""
    for path in ("api/state", "api/stream"):
        answer = httpx2.get(f"{served.url}{path}")
        assert (answer.status_code, answer.json()["error"]) == (401, "missing")
        assert "b03" not in answer.text
    for path in ("", "static/main.js", "metrics", "health", "ready"):
        answer = httpx2.get(f"{served.url}{path}")
        assert answer.status_code == 200
        assert "b03" not in answer.text
    assert httpx2.get(f"{served.url}api/access").json() == {"login_to_read": True, "may_read": False}


def test_both_kinds_of_token_permit_reading_and_one_permits_orders(served: ServedDashboard) -> None:
    """By header, as programs send it; a token for reading gives no orders."""
    order = {"kind": "pause", "reason": "we said so"}
    for scope, status in ((READ_SCOPE, 403), (SCOPE, 202)):
        headers = bearer(served.token(scope=scope))
        assert "b03" in httpx2.get(f"{served.url}api/state", headers=headers).text
        assert httpx2.get(f"{served.url}api/session", headers=headers).json()["can_order"] is (scope == SCOPE)
        assert httpx2.post(f"{served.url}api/orders", headers=headers, json=order).status_code == status
    served.orders.clear()


def test_a_cookie_permits_reading_but_never_orders(served: ServedDashboard) -> None:
    """The cookie is hidden from scripts and not sent to other sites; signing out ends it."""
    with httpx2.Client(base_url=served.url, timeout=30) as client:
        assert client.post("api/session", headers=bearer(served.token())).status_code == 200
        assert client.get("api/access").json()["may_read"] is True
        assert "b03" in client.get("api/state").text
        refused = client.post("api/orders", json={"kind": "pause", "reason": "we said so"})
        assert (refused.status_code, refused.json()["error"], served.orders) == (401, "missing", [])
        set_cookie = client.post("api/session", headers=bearer(served.token())).headers["Set-Cookie"]
        assert {"HttpOnly", "SameSite=strict", "Path=/api"} <= set(set_cookie.split("; "))
        assert client.delete("api/session").status_code == 204
        assert client.get("api/state").status_code == 401


@pytest.mark.parametrize("make", ["forged", "expired", "foreign"])
def test_no_other_token_permits_reading(served: ServedDashboard, make: str) -> None:
    """Neither in the header nor in the cookie."""
    token = {
        "forged": make_token("x" * 40, "Ana", "regraft", 1, 24, time.time()),
        "expired": make_token(SECRET, "Ana", "regraft", 1, 24, time.time() - 7200),
        "foreign": make_token(SECRET, "Ana", "production", 1, 24, time.time()),
    }[make]
    assert httpx2.get(f"{served.url}api/state", headers=bearer(token)).status_code in (401, 403)
    assert httpx2.get(f"{served.url}api/state", cookies={COOKIE: token}).status_code in (401, 403)
    assert httpx2.get(f"{served.url}api/access", cookies={COOKIE: token}).json()["may_read"] is False


def test_an_open_stream_ends_when_its_token_is_revoked(tmp_path: Path) -> None:
    """Not only new requests are refused: within seconds an open page gets nothing more."""
    with served_dashboard(tmp_path, login_to_read=True) as dashboard:
        publish(dashboard.redis_url, written_document())
        token = dashboard.token(scope=READ_SCOPE)
        with httpx2.stream("GET", f"{dashboard.url}api/stream", headers=bearer(token), timeout=30) as response:
            stream = Stream(response)
            assert stream.next()[0] == "snapshot"
            revoke_token(tmp_path / "revoked-tokens.txt", id_of(token))
            stream.read_to_its_end()
        wait_until(lambda: "regraft_dashboard_clients 0.0" in httpx2.get(f"{dashboard.url}metrics").text)
        refused = httpx2.get(f"{dashboard.url}api/state", headers=bearer(token))
        assert (refused.status_code, refused.json()["error"]) == (401, "revoked")


def test_over_tls_the_cookie_is_never_sent_in_the_clear(tmp_path: Path) -> None:
    """The cookie is marked as secure."""
    authority = LocalAuthority(tmp_path / "tls")
    issued = authority.issue("dashboard")
    files = {"certificate_file": issued.certificate_file, "key_file": issued.key_file}
    trusting = ssl.create_default_context(cafile=str(authority.ca_file))
    with served_dashboard(tmp_path, **files) as dashboard:
        answer = httpx2.post(f"{dashboard.url}api/session", headers=bearer(dashboard.token()), verify=trusting)
        assert "Set-Cookie" not in answer.headers  # If anybody may read, no cookie is needed.
    with served_dashboard(tmp_path / "second", login_to_read=True, **files) as dashboard:
        answer = httpx2.post(f"{dashboard.url}api/session", headers=bearer(dashboard.token()), verify=trusting)
        assert "Secure" in answer.headers["Set-Cookie"].split("; ")


def test_a_login_without_a_secret_is_a_wrong_setting() -> None:
    """Nobody could sign in."""
    (error,) = settings(login_to_read=True).errors()
    assert error.startswith("login_to_read is true and there is no secret")
