"""A broker's name as part of the names of files, consumers, queues and clients, where not every character may be. Pure.

Long names are cut, and end with a checksum.
"""

from __future__ import annotations

import hashlib
from urllib.parse import quote

LENGTH_MAX = 120  # Files, queues and consumers have at most 255 bytes, of which their own words take some.
KEPT, CHECKSUM_BYTES = 80, 16


def safe_name(name: str) -> str:
    """Return a name in which only characters are left that every broker and file system takes."""
    safe = quote(name, safe="", errors="replace").replace(".", "%2E")
    if len(safe) <= LENGTH_MAX:
        return safe
    return f"{safe[:KEPT]}%-{hashlib.blake2b(name.encode(errors='replace'), digest_size=CHECKSUM_BYTES).hexdigest()}"
