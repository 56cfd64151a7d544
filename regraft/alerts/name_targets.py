"""Name the targets of alerts without revealing their secrets, and check their URLs.

Tokens may be anywhere in such URLs, even in the host, so only the kind of an apprise URL is shown; for a webhook, the
host.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from regraft.infra.process.find_extras import require_extras

if TYPE_CHECKING:
    from apprise import Apprise

DIGEST_CHARACTERS = 6
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
WEBHOOK_SCHEMES = ("http", "https")


def name_target(url: str) -> str:
    """Return the name of an apprise URL: its kind, and a digest that distinguishes URLs of a kind."""
    scheme = url.partition("://")[0]
    return f"{scheme.lower() if SCHEME.fullmatch(scheme) else 'target'}#{_digest(url)}"


def name_webhook(url: str) -> str:
    """Return the name of a webhook: its host and a digest of the whole URL."""
    try:
        parts = urlsplit(url)
        host = parts.hostname if parts.scheme in WEBHOOK_SCHEMES else None
    except ValueError:
        host = None
    return f"webhook:{host or 'unknown'}#{_digest(url)}"


def load_apprise() -> type[Apprise]:
    """Return the Apprise class, with its log disabled because it contains URLs.

    Loading it takes a third of a second. Raises StackError if it is not installed.
    """
    require_extras("An alert target that is an apprise URL", "alerts")
    import apprise

    own_log = logging.getLogger("apprise")
    own_log.addHandler(logging.NullHandler())
    own_log.propagate = False
    return apprise.Apprise


def target_errors(urls: Iterable[str]) -> list[str]:
    """Return a sentence for each apprise URL that cannot be used, without the URL itself."""
    errors = []
    for place, url in enumerate(urls):
        if load_apprise().instantiate(url) is None:
            errors.append(
                f"targets[{place}] ({name_target(url)}) is not a URL that apprise can use: see its list of "
                "services, and "
                "put http and https addresses into webhooks"
            )
    return errors


def webhook_errors(urls: Iterable[str]) -> list[str]:
    """Return a sentence for each webhook URL that cannot be used, without the URL itself."""
    errors = []
    for place, url in enumerate(urls):
        try:
            parts = urlsplit(url)
            is_usable = parts.scheme in WEBHOOK_SCHEMES and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_usable = False
        if not is_usable:
            errors.append(
                f"webhooks[{place}] ({name_webhook(url)}) is not an address: write http(s)://host[:port]/path"
            )
    return errors


def _digest(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()[:DIGEST_CHARACTERS]
