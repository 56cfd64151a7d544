"""Make the certificates of a local stack: an authority, and those that it issues for servers and clients.

In: names, times and a directory. Out: PEM files; keys are readable by this user only. This is not for production, where
sites have their own authorities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from regraft.infra.process.write_private import write_private

VALID_DAYS = 800  # longer than any run
LOCAL_HOSTS = ("127.0.0.1", "localhost")


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """The files of one certificate; ``both_file`` holds key and certificate, as Java servers require."""

    certificate_file: Path
    key_file: Path
    both_file: Path


class LocalAuthority:
    """An authority whose key is only in memory: once the process ends, no more certificates can be issued."""

    def __init__(self, directory: Path) -> None:
        """Write the authority's certificate to ``directory``, which is made accessible to this user only."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("Regraft local ca")
        certificate = (
            _builder(self._name, self._name, self._key.public_key(), datetime.now(UTC), VALID_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca_file = directory / "ca.pem"
        self.ca_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self, name: str, hosts: Sequence[str] = LOCAL_HOSTS, *, age_days: int = 0, valid_days: int = VALID_DAYS
    ) -> IssuedCertificate:
        """Write a certificate for ``name``, valid for servers at ``hosts`` and for clients, issued ``age_days`` ago."""
        key = ec.generate_private_key(ec.SECP256R1())
        since = datetime.now(UTC) - timedelta(days=age_days)
        alternative = x509.SubjectAlternativeName([_host(host) for host in hosts])
        certificate = (
            _builder(_named(name), self._name, key.public_key(), since, valid_days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(alternative, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        text = certificate.public_bytes(serialization.Encoding.PEM)
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        files = IssuedCertificate(*(self._directory / f"{name}{end}" for end in (".pem", "-key.pem", "-both.pem")))
        files.certificate_file.write_bytes(text)
        write_private(files.key_file, secret)
        write_private(files.both_file, secret + text)
        return files


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, since: datetime, valid_days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(since - timedelta(hours=1))  # Tolerates small differences between clocks.
        .not_valid_after(since + timedelta(days=valid_days))
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
