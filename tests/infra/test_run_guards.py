"""The guards of a run: cache directory, locks, ports, free disk space, the system's trust store."""

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from regraft.infra.local.fetch_jars import PASSWORD, system_certificates, write_trust_store
from regraft.infra.local.find_cache import find_cache, find_checkout
from regraft.infra.local.find_java import find_java
from regraft.infra.local.start_on_port import start_on_port
from regraft.infra.local.supervise import ServiceFailedError
from regraft.infra.process.check_disk import DiskFullError, check_disk, free_mb
from regraft.infra.process.find_port import LOOPBACK, PortInUseError, check_port, choose_ports, is_listening
from regraft.infra.process.hold_lock import LockHeldError, hold_lock


def test_named_cache_precedes_the_checkouts(tmp_path: Path) -> None:
    """REGRAFT_CACHE names the cache; without it a checkout has its own."""
    assert find_cache({"REGRAFT_CACHE": str(tmp_path)}) == tmp_path
    checkout = find_checkout()
    assert checkout is not None
    assert find_cache({}) == checkout / ".cache"


def test_installed_package_uses_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Outside a checkout the cache is in the user's XDG cache."""
    monkeypatch.setattr("regraft.infra.local.find_cache.find_checkout", lambda: None)
    assert find_cache({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "regraft"
    assert find_cache({}) == Path.home() / ".cache" / "regraft"


def test_held_lock_names_its_holder(tmp_path: Path) -> None:
    """The error names the process that holds the lock; the lock is available when that process is done."""
    with hold_lock(tmp_path / "lock"), pytest.raises(LockHeldError, match="is still held by process"):
        hold_lock(tmp_path / "lock").__enter__()
    with hold_lock(tmp_path / "lock"):
        pass


def test_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    """A process that is killed while it holds a lock leaves none behind."""
    script = (
        "import sys, time; from pathlib import Path; from regraft.infra.process.hold_lock import hold_lock\n"
        "with hold_lock(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LockHeldError) as caught:
            hold_lock(tmp_path / "lock").__enter__()
        assert caught.value.holder_pid == holder.pid
        holder.kill()
    with hold_lock(tmp_path / "lock"):
        pass


def test_chosen_ports_differ_and_are_free() -> None:
    """Ports chosen together differ, servers can listen on them, and no outgoing connection is given one."""
    ports = choose_ports(5)
    assert len(set(ports)) == 5
    for port in ports:
        check_port(port, "a server")
    outgoing = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if outgoing.exists():
        assert max(ports) < int(outgoing.read_text().split()[0])


def test_when_hardly_any_port_is_free_the_error_gives_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice ends after a bounded number of tries."""
    monkeypatch.setattr("regraft.infra.process.find_port.TRIES_MAX", 1)
    with pytest.raises(PortInUseError, match=r"^1 ports between 20000 and 32000 were tried and 1 of 2 are free: .*\.$"):
        choose_ports(2)


@pytest.mark.parametrize(
    "text", ["bind: Address already in use", "{listen_error,{acceptor,{127,0,0,1},5672},eaddrinuse}"]
)
def test_a_server_whose_port_was_taken_starts_on_another(text: str) -> None:
    """Whatever its words for that are; another reason is reported at once."""

    class Supervisor:
        def start(self, service: Any) -> None:
            tried.append(service)
            if service < 2:
                raise ServiceFailedError("it did not start", text if service else "no disk")

    tried: list[int] = []
    assert (
        start_on_port(cast(Any, Supervisor()), "RabbitMQ", None, lambda again: (7, cast(Any, 2 if again else 1))) == 7
    )
    assert tried == [1, 2]
    with pytest.raises(ServiceFailedError):
        start_on_port(cast(Any, Supervisor()), "RabbitMQ", None, lambda _: (7, cast(Any, 0)))
    assert tried == [1, 2, 0]


def test_port_in_use_is_one_sentence() -> None:
    """A requested port that is in use is refused with its number and what to do."""
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert is_listening(port)
        with pytest.raises(PortInUseError, match=rf"^Port {port} for Kafka cannot be used .*: stop the process .*\.$"):
            check_port(port, "Kafka")
    assert not is_listening(port)


def test_full_disk_is_one_sentence(tmp_path: Path) -> None:
    """Too little free space is refused before a run starts, with the free and the required space."""
    check_disk(tmp_path / "not" / "there" / "yet", free_mb_min=0)
    too_much_mb = free_mb(tmp_path) + 1_000_000
    with pytest.raises(DiskFullError, match=rf"^Only \d+ MB are free .* at least {too_much_mb} MB are needed: .*\.$"):
        check_disk(tmp_path, free_mb_min=too_much_mb)


def test_java_reads_the_written_trust_store(tmp_path: Path) -> None:
    """Java lists the authorities that this system trusts from the written store."""
    certificates = system_certificates()
    if not certificates:
        pytest.skip("this system has no certificate bundle that Python's ssl finds")
    store = tmp_path / "trust.jks"
    write_trust_store(store, certificates)
    keytool = find_java().home / "bin" / "keytool"
    if not keytool.is_file():
        pytest.skip(f"{keytool} is not part of this Java")
    listing = subprocess.run(
        [keytool, "-list", "-keystore", store, "-storepass", PASSWORD], capture_output=True, text=True, check=True
    )
    assert listing.stdout.count("trustedCertEntry") == len(certificates)
