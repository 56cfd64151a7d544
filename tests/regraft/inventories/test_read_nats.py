"""Real NATS servers: clusters that gateways join, and what their monitoring ports say about round trips."""

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from regraft.inventories.read_nats import read_nats
from regraft.inventories.source_error import SourceError
from tests.producers.nodes.nats_servers import NatsServer, needs_nats
from tests.producers.nodes.server_process import free_port

WAIT_S = 30.0


@pytest.mark.stack
def test_servers_and_round_trips_of_a_super_cluster(tmp_path: Path) -> None:
    """Routes name their servers, gateways give IDs: a server whose port was not given is a broker all the same."""
    needs_nats()
    routes = {name: free_port() for name in ("n1", "n2", "m1")}
    gates = {name: free_port() for name in routes}
    sites = ", ".join(
        f'{{name: {cluster}, url: "nats://127.0.0.1:{gates[name]}"}}' for cluster, name in (("A", "n1"), ("B", "m1"))
    )
    with ExitStack() as held:
        servers = {}
        for name, cluster, others in (("n1", "A", "n2"), ("n2", "A", "n1"), ("m1", "B", "")):
            joined = f'"nats://127.0.0.1:{routes[others]}"' if others else ""
            extra = (
                f'cluster {{ name: {cluster}, listen: "127.0.0.1:{routes[name]}", routes: [{joined}] }}\n'
                f'gateway {{ name: {cluster}, listen: "127.0.0.1:{gates[name]}", gateways: [{sites}] }}'
            )
            servers[name] = NatsServer(name, tmp_path, extra, leaf="# no leaf port", leaf_port=routes[name]).start()
            held.callback(servers[name].stop)
        urls = {name: f"http://127.0.0.1:{server.api_port}" for name, server in servers.items()}
        deadline_s = time.monotonic() + WAIT_S
        found = read_nats(list(urls.values()))
        while len(found.delays_ms) < 3 and time.monotonic() < deadline_s:
            time.sleep(0.2)
            found = read_nats(list(urls.values()))
        assert found.names == ["m1", "n1", "n2"]
        assert set(found.delays_ms) == {("m1", "n1"), ("m1", "n2"), ("n1", "n2")}
        assert all(0 < delay_ms < 1_000 for delay_ms in found.delays_ms.values())
        alone = read_nats([urls["n1"]])
        assert alone.names == ["n1", "n2"]
        assert "the monitoring ports of n2 were not given: their other links are unknown" in alone.notes


def test_a_port_that_does_not_answer_is_named() -> None:
    """With an example of what to give."""
    with pytest.raises(SourceError, match=r"varz did not answer .*: give the address of its monitoring port"):
        read_nats([f"http://127.0.0.1:{free_port()}"])
