"""A client's settings for TLS and login: names of files and variables that hold secrets, never the secrets.

Out: the secrets, read at the moment of use, and every error of the settings. Converting them to options of client
libraries belongs to ``kafka_access`` and ``redis_access``.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from regraft.infra.process.stack_error import StackError

IN_VARIABLE = "env:"  # Begins the name of a variable in place of that of a file.
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SecretMissingError(StackError):
    """Reports which secret is not in the file or variable that the settings name."""


@dataclass(frozen=True)
class ConnectionSecurity:
    """Which servers a client trusts, and how it authenticates itself."""

    ca_file: Annotated[
        Path | None,
        "certificates (PEM) of the authorities to trust; none for the system's",
    ] = None
    certificate_file: Annotated[
        Path | None,
        "client certificate (PEM, with its chain), for mutual TLS",
    ] = None
    key_file: Annotated[Path | None, "private key of that certificate"] = None
    key_password_file: Annotated[
        Path | None,
        "file with the key's password, or env:NAME",
    ] = None
    check_host_name: Annotated[
        bool,
        "the server's certificate must be for its host name; false accepts any certificate of a trusted authority",
    ] = True
    username: Annotated[str | None, "user to log in as; with OAUTHBEARER the client id"] = None
    password_file: Annotated[
        Path | None,
        "file with the password, or env:NAME for an environment variable; with OAUTHBEARER the client secret",
    ] = None

    @property
    def password(self) -> str | None:
        """The password, None if none is named. Raises SecretMissingError."""
        return _read_secret(self.password_file)

    @property
    def key_password(self) -> str | None:
        """The key's password, None if none is named. Raises SecretMissingError."""
        return _read_secret(self.key_password_file)

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables of the environment that hold secrets."""
        named = (variable_of(file) for file in (self.password_file, self.key_password_file))
        return tuple(name for name in named if name is not None)

    @property
    def trusted_file(self) -> Path | None:
        """The file of trusted authorities, by default the system's; None if the system has none."""
        system = ssl.get_default_verify_paths().cafile
        return self.ca_file or (Path(system) if system else None)

    def errors(self) -> list[str]:
        """Return what is wrong, one sentence each; none contains a secret."""
        errors = [*self._password_errors("password"), *self._password_errors("key_password")]
        for name in ("ca_file", "certificate_file", "key_file"):
            file = getattr(self, name)
            if file is not None and (reason := _unreadable(file)):
                errors.append(f"{name} {file} cannot be read ({reason}): check its name and permissions")
        if self.certificate_file is not None and self.key_file is None:
            errors.append("certificate_file is given without key_file: mutual TLS needs both")
        if self.key_file is not None and self.certificate_file is None:
            errors.append("key_file is given without certificate_file: mutual TLS needs both")
        if self.key_password_file is not None and self.key_file is None:
            errors.append("a password is given for a key, but no key_file: name the key, or leave the password out")
        return errors or list(self._pem_errors())

    def _password_errors(self, name: str) -> Iterator[str]:
        file: Path | None = getattr(self, f"{name}_file")
        variable = variable_of(file)
        if variable is not None and not VARIABLE_NAME.fullmatch(variable):
            # It may be the secret itself, so it is not printed.
            yield f"{name}_file is {IN_VARIABLE} with what is not the name of an environment variable: name one"
            return
        try:
            secret = _read_secret(file)
        except SecretMissingError as error:
            yield f"{name}_{error}"
            return
        if secret is not None and not secret.isprintable():
            yield f"{name}_file {file} holds more than one line, or control characters: keep only the secret there"

    def _pem_errors(self) -> Iterator[str]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.ca_file is not None:
            try:
                context.load_verify_locations(cafile=self.ca_file)
            except ssl.SSLError:
                yield f"ca_file {self.ca_file} holds no certificate in PEM form: name the authority's certificate"
        if self.certificate_file is None or self.key_file is None:
            return
        password = self.key_password or ""
        try:  # Without a password OpenSSL would ask for one at the terminal.
            context.load_cert_chain(self.certificate_file, self.key_file, lambda: password)
        except (ssl.SSLError, ValueError) as error:
            reason = getattr(error, "reason", None) or "not usable"
            yield (
                f"certificate_file {self.certificate_file} and key_file {self.key_file} do not match ({reason}): "
                "both must be PEM, the key that of the certificate, its password the right one"
            )


def variable_of(file: Path | None) -> str | None:
    """Return the variable that ``env:NAME`` names, None for a file."""
    text = str(file or "")
    return text.removeprefix(IN_VARIABLE) if text.startswith(IN_VARIABLE) else None


def _read_secret(file: Path | None) -> str | None:
    if file is None:
        return None
    if (variable := variable_of(file)) is not None:
        secret = os.environ.get(variable, "")
    elif reason := _unreadable(file):
        raise SecretMissingError(f"file {file} cannot be read ({reason}): check its name and permissions")
    else:
        secret = file.read_text(encoding="utf-8-sig").rstrip("\r\n")
    if not secret:
        what = "is empty" if variable is None else "is not set, or empty"
        raise SecretMissingError(f"file {file} {what}: put the secret there")
    return secret


def _unreadable(file: Path) -> str:
    try:
        file.read_text(encoding="utf-8-sig")
    except OSError as error:
        return error.strerror or str(error)
    except UnicodeDecodeError:
        return "it is not text"
    return ""
