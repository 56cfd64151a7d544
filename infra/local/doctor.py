"""Check whether this machine has what the local stack needs, and how to fix what is missing.

In: the environment, the cache and an output directory. Out: one finding per check. Nothing is changed, except that a
probe file is written and removed. Showing findings belongs to the command line.
"""

import importlib.metadata
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil

from regraft.infra.kafka.check_kafka import Diagnosis, check_kafka, missing_to_do, missing_topics
from regraft.infra.kafka.compare_topics import durability_note
from regraft.infra.kafka.create_topics import TopicMismatchError, check_topics, count_brokers
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.read_window import read_newest_window
from regraft.infra.live.ask_server import why_refused
from regraft.infra.live.redis_access import RedisAccess
from regraft.infra.local.fetch_jars import check_jars, jar_dir, read_lock
from regraft.infra.local.find_cache import find_cache, find_checkout
from regraft.infra.local.find_java import NoJavaError, find_java
from regraft.infra.local.valkey_server import NoRedisError, find_valkey, is_redis_ready
from regraft.infra.process.check_disk import FREE_MB_MIN, free_mb
from regraft.infra.process.find_extras import describe_missing, missing_extras
from regraft.infra.process.secret_files import TO_DO, open_text
from regraft.overlay.tree.compiled_costs import find_compiled
from regraft.schemas.clock_offsets import CLOCK_OFFSET_MS_MAX, clock_offsets_ms, farthest_clocks
from regraft.schemas.texts import name_some
from regraft.schemas.topics import DEFAULT_NAMESPACE, NO_AGENT, TOPICS, topic_names


def read_clock_offsets_ms(kafka: KafkaAccess, namespace: str) -> dict[str, int] | None:
    """Return the offsets of the newest window, in ms by broker; None if there is no window or Kafka does not answer."""
    window = read_newest_window(kafka, namespace)
    return None if window is None else clock_offsets_ms(window.clocks)


PYTHON_MIN = (3, 11)
MEMORY_MB_MIN = 3_000
DISK_MB_RECOMMENDED = 2_000
CORES_MIN = 2
SERVER_TIMEOUT_S = 5.0
SHOWN_MAX = 5
LOOP_EXTRAS = ("spark", "dashboard", "alerts", "plots", "valkey")


class FindingStatus(StrEnum):
    """How serious a finding is: fine, a warning, or something that prevents a run."""

    OK = "ok"
    WARN = "warn"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: what was found, and what to do about it ('' if it is ok)."""

    name: str
    status: FindingStatus
    found: str
    to_do: str = ""


def diagnose(
    out_dir: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    free_mb_min: int = FREE_MB_MIN,
    kafka: KafkaAccess | None = None,
    namespace: str = DEFAULT_NAMESPACE,
    agents: Sequence[str] = (NO_AGENT,),
    redis: RedisAccess | None = None,
    secret_files: Sequence[Path] = (),
) -> list[Finding]:
    """Check everything the local stack needs; ``out_dir`` defaults to ``out`` in the working directory.

    ``kafka``, with the topics of the ``namespace`` and its ``agents``, and ``redis`` are the user's own servers,
    ``secret_files`` what the settings say holds secrets.
    """
    values = os.environ if environ is None else environ
    out = out_dir or Path("out")
    checks: list[Callable[[], Finding]] = [
        _python,
        _packages,
        lambda: _java(values),
        lambda: _jars("spark"),
        lambda: _jars("kafka"),
        _valkey,
        _search,
        _cores,
        _memory,
        lambda: _disk("disk of the output", out, free_mb_min),
        lambda: _disk("disk of the cache", find_cache(values), free_mb_min),
        lambda: _writable("output directory", out),
        lambda: _writable("cache directory", find_cache(values)),
    ]
    if secret_files:
        checks.append(lambda: _secrets(secret_files))
    return [check() for check in checks] + list(_servers(kafka, namespace, agents, redis))


def _python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info[:2] < PYTHON_MIN:
        return Finding("python", FindingStatus.MISSING, version, "Install Python 3.11 or newer and run `make setup`.")
    return Finding("python", FindingStatus.OK, f"{version} ({sys.executable})")


def _packages() -> Finding:
    checkout = find_checkout()
    if checkout is None:
        return _extras()
    errors = package_errors((checkout / "requirements.lock").read_text())
    if errors:
        shown = "; ".join(errors[:SHOWN_MAX]) + (" ..." if len(errors) > SHOWN_MAX else "")
        return Finding("packages", FindingStatus.WARN, shown, "Run `rm -rf .venv && make setup` for the locked ones.")
    return Finding("packages", FindingStatus.OK, "as in requirements.lock")


def _extras() -> Finding:
    """Check the extras of the whole loop; outside a checkout there is no lock to compare with."""
    if missing := missing_extras(LOOP_EXTRAS):
        to_do = "A stage alone may not need them."
        return Finding("packages", FindingStatus.WARN, describe_missing("The whole loop", missing), to_do)
    return Finding("packages", FindingStatus.OK, "installed outside a checkout: there is no lock to compare with")


def package_errors(lock: str) -> list[str]:
    """Return how the installed packages differ from the text of a lock; a package with a marker may be absent."""
    locked: dict[str, set[str]] = {}
    optional: set[str] = set()
    for name, version, marker in re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)( ;[^\\\n]*)?", lock, re.MULTILINE):
        locked.setdefault(name, set()).add(version)
        if marker:
            optional.add(name)
    errors = []
    for name, versions in sorted(locked.items()):
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            if name not in optional:
                errors.append(f"{name} is not installed")
            continue
        if installed not in versions:
            errors.append(f"{name} is {installed}, locked {' or '.join(sorted(versions))}")
    return errors


def _java(environ: Mapping[str, str]) -> Finding:
    try:
        java = find_java(environ)
    except NoJavaError as error:
        return Finding("java", FindingStatus.MISSING, "none", str(error))
    return Finding("java", FindingStatus.OK, f"{java.version} from {java.source} ({java.home})")


def _jars(set_name: str) -> Finding:
    jar_set = read_lock()[set_name]
    check = check_jars(jar_set, jar_dir(set_name))
    name = f"jars for {set_name}"
    if check.complete:
        return Finding(name, FindingStatus.OK, f"{len(jar_set.jars)} jars as in infra/jars.lock")
    parts = []
    if check.missing:
        parts.append(f"{len(check.missing)} of {len(jar_set.jars)} jars are missing")
    if check.mismatched:
        parts.append(f"{', '.join(check.mismatched[:SHOWN_MAX])} do not match infra/jars.lock")
    to_do = (
        "Run `python -m regraft.infra.local.set_up` with network access: it removes what does not match and "
        "fetches the rest."
    )
    return Finding(name, FindingStatus.MISSING, "; ".join(parts), to_do)


def _valkey() -> Finding:
    try:
        return Finding("valkey", FindingStatus.OK, str(find_valkey()))
    except NoRedisError as error:
        return Finding("valkey", FindingStatus.MISSING, "none", str(error))


def _search() -> Finding:
    """Check whether the controller's search over links is compiled; without that, it only decides later."""
    name = "compiled search"
    if missing := missing_extras(["compiled"]):
        return Finding(name, FindingStatus.WARN, "none", describe_missing("A fast search over a tree's links", missing))
    if (directory := find_compiled()) is None:
        to_do = "Run `python -m regraft.infra.local.compile_search`, or let the first controller compile, some 19 s."
        return Finding(name, FindingStatus.WARN, "not compiled for this machine yet", to_do)
    return Finding(name, FindingStatus.OK, f"in {directory}")


def _cores() -> Finding:
    cores = os.cpu_count() or 1
    if cores < CORES_MIN:
        to_do = f"The demo is designed for {CORES_MIN} cores or more: expect late windows, or slow it down."
        return Finding("cores", FindingStatus.WARN, str(cores), to_do)
    return Finding("cores", FindingStatus.OK, str(cores))


def _memory() -> Finding:
    available_mb = psutil.virtual_memory().available // 1_000_000
    if available_mb < MEMORY_MB_MIN:
        to_do = f"The whole stack takes up to {MEMORY_MB_MIN} MB: close other programs first."
        return Finding("memory", FindingStatus.WARN, f"{available_mb} MB available", to_do)
    return Finding("memory", FindingStatus.OK, f"{available_mb} MB available")


def _disk(name: str, directory: Path, free_mb_min: int) -> Finding:
    found_mb = free_mb(directory)
    text = f"{found_mb} MB free for {directory}"
    if found_mb < free_mb_min:
        to_do = f"At least {free_mb_min} MB are needed: free some space, or choose a directory on another disk."
        return Finding(name, FindingStatus.MISSING, text, to_do)
    if found_mb < DISK_MB_RECOMMENDED:
        return Finding(name, FindingStatus.WARN, text, f"Long runs need {DISK_MB_RECOMMENDED} MB: free some space.")
    return Finding(name, FindingStatus.OK, text)


def _writable(name: str, directory: Path) -> Finding:
    existing = directory.absolute()
    while not existing.exists():
        existing = existing.parent
    try:
        with tempfile.TemporaryFile(dir=existing):
            return Finding(name, FindingStatus.OK, f"{directory} can be written")
    except OSError as error:
        to_do = "Change its permissions or choose another directory (REGRAFT_CACHE for the cache)."
        return Finding(name, FindingStatus.MISSING, f"{existing} cannot be written ({error.strerror})", to_do)


def _secrets(files: Sequence[Path]) -> Finding:
    if reason := open_text(files):
        return Finding("files with secrets", FindingStatus.WARN, reason, f"{TO_DO}.")
    return Finding("files with secrets", FindingStatus.OK, "not readable by every user")


def _servers(
    kafka: KafkaAccess | None, namespace: str, agents: Sequence[str], redis: RedisAccess | None
) -> Iterator[Finding]:
    if kafka is not None:
        finding = check_kafka(
            kafka, [name for topic in TOPICS for name in topic_names(topic, namespace, agents)], SERVER_TIMEOUT_S
        )
        if isinstance(finding, Diagnosis):
            yield Finding("kafka server", FindingStatus.MISSING, finding.found, finding.to_do)
        else:
            yield Finding("kafka server", FindingStatus.OK, finding)
            yield _topics_finding(kafka, namespace, agents)
            yield _durable(count_brokers(kafka))
            if offsets_ms := read_clock_offsets_ms(kafka, namespace):
                yield clocks_finding(offsets_ms)
    if redis is not None:
        shown = redis.url.rsplit("@", 1)[-1]  # the part before the @ may hold a password
        if not is_redis_ready(redis.url, SERVER_TIMEOUT_S, redis.security):
            to_do = "Correct redis.url and redis.security; without a URL the demo starts its own server."
            yield Finding(
                "redis server", FindingStatus.MISSING, f"{shown} does not answer, or refuses this client", to_do
            )
        elif refusal := why_refused(redis, SERVER_TIMEOUT_S):
            reason, _, to_do = refusal.partition(": ")
            text = f"{shown} refuses writes: {reason}"
            yield Finding("redis server", FindingStatus.MISSING, text, f"{to_do[0].upper()}{to_do[1:]}.")
        else:
            yield Finding("redis server", FindingStatus.OK, f"{shown} answers")


def _topics_finding(kafka: KafkaAccess, namespace: str, agents: Sequence[str]) -> Finding:
    """Return whether the topics exist, unless none does yet, and are configured as needed by any stage."""
    if missing := missing_topics(kafka, namespace, agents, SERVER_TIMEOUT_S):
        text = f"{name_some(missing, SHOWN_MAX)} {'is' if len(missing) == 1 else 'are'} missing"
        return Finding("kafka topics", FindingStatus.MISSING, text, missing_to_do(missing))
    try:
        reason = check_topics(kafka, namespace, agents)
    except TopicMismatchError as error:
        wrong, _, to_do = str(error).rpartition(": ")
        return Finding("kafka topics", FindingStatus.MISSING, wrong, f"{to_do[0].upper()}{to_do[1:]}")
    if reason:
        to_do = "Let this login describe the configurations of topics."
        return Finding("kafka topics", FindingStatus.WARN, f"their configuration is not shown ({reason})", to_do)
    return Finding("kafka topics", FindingStatus.OK, "those that exist are configured as needed")


def _durable(broker_count: int) -> Finding:
    note = durability_note(broker_count)
    if note:
        return Finding("kafka replicas", FindingStatus.WARN, note, "Run three Kafka brokers in production.")
    return Finding("kafka replicas", FindingStatus.OK, f"{broker_count} brokers")


def clocks_finding(offsets_ms: Mapping[str, int]) -> Finding:
    """Return a finding about the offsets of brokers' clocks to Kafka's, the largest first."""
    shown = farthest_clocks(offsets_ms, SHOWN_MAX)
    more = len(offsets_ms) - len(shown)
    text = ", ".join(f"{broker} {offset_ms:+d} ms" for broker, offset_ms in shown.items())
    text = f"to Kafka's: {text}{f', and {more} smaller' if more else ''}"
    if any(abs(offset_ms) > CLOCK_OFFSET_MS_MAX for offset_ms in shown.values()):
        to_do = f"Run chrony or NTP on every broker's machine and on Kafka's: {CLOCK_OFFSET_MS_MAX} ms are allowed."
        return Finding("brokers' clocks", FindingStatus.WARN, text, to_do)
    return Finding("brokers' clocks", FindingStatus.OK, text)
