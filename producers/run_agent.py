"""Run an agent beside clients until it is asked to stop: its files, its port, its metrics.

In: addresses of brokers. Out: a process whose state shows at its metrics port. It needs neither Kafka nor the
inventory: nodes reach it through the brokers. Sessions belong to :mod:`producers.agents.agent`.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog

from regraft.infra.process.describe_os_error import describe_os_error
from regraft.infra.process.secret_files import warn_of_open
from regraft.infra.process.serve_metrics import RunningHealth, serve_metrics
from regraft.infra.process.stack_error import CallError, StackError
from regraft.producers.agents.agent import Agent
from regraft.producers.agents.agent_metrics import AgentMetrics
from regraft.producers.agents.broker_address import BrokerAddress
from regraft.producers.agents.client_session import ClientSession
from regraft.producers.agents.nats_session import NatsSession
from regraft.producers.nodes.node_setup import address_of
from regraft.schemas.agent_names import AGENT_NAME_LENGTH_MAX, is_agent_name
from regraft.schemas.parse_text import parse_json

log = structlog.get_logger(__name__)

SCHEMES = {"nats": ("nats", 4222), "tls": ("nats", 4222), "mqtt": ("mqtt", 1883), "mqtts": ("mqtt", 8883)}
WITH_TLS = ("tls", "mqtts")
SHOWN_S = 1.0
SILENCE_S_MAX = 10.0
FORM = '{"b01": "nats://10.0.0.1:4222", "b02": "tls://nats2.example.org:4222"}'


class AgentError(CallError):
    """The agent's options, or the files that they name, are wrong; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """What an agent is started with; files are PEM. An empty ``listen`` is its protocol's usual port on this host."""

    name: str
    broker: str
    brokers_file: Path
    listen: str
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    metrics_port: int | None = None


def run_agent(options: AgentOptions, stop: threading.Event) -> None:
    """Run an agent until ``stop`` is set; raise AgentError or StackError if it cannot start."""
    if not is_agent_name(options.name):
        raise AgentError(
            f"--name is {options.name!r}: an agent has 1 to {AGENT_NAME_LENGTH_MAX} letters, digits, - and _, which no "
            "other agent of the overlay has."
        )
    warn_of_open([options.key_file] if options.key_file is not None else [])
    brokers, tls = read_brokers(options.brokers_file, options.ca_file), _listening_tls(options)
    if options.broker not in brokers:
        raise AgentError(
            f"--broker is {options.broker!r}, which is not in {options.brokers_file}: name one of {', '.join(brokers)}."
        )
    try:
        host, port = address_of(options.listen or listening_by_default(brokers[options.broker].scheme))
    except ValueError as error:
        raise AgentError(f"--listen: {error}.") from error
    agent = Agent(options.name, brokers, options.broker, _session_of(brokers[options.broker].scheme))
    metrics, health = AgentMetrics(), RunningHealth("the agent", SILENCE_S_MAX)
    with ExitStack() as held:
        if options.metrics_port is not None:
            held.enter_context(serve_metrics(metrics.registry, "127.0.0.1", options.metrics_port, health))
        asyncio.run(_run(agent, (host, port), tls, (metrics, health), stop))


def listening_by_default(scheme: str) -> str:
    """Return where an agent listens that speaks as a broker of this scheme does, without TLS."""
    ports = {protocol: port for name, (protocol, port) in SCHEMES.items() if name not in WITH_TLS}
    return f"127.0.0.1:{ports[SCHEMES[scheme][0]]}"


async def _run(
    agent: Agent,
    address: tuple[str, int],
    tls: ssl.SSLContext | None,
    shown: tuple[AgentMetrics, RunningHealth],
    stop: threading.Event,
) -> None:
    metrics, health = shown
    try:
        await agent.start(*address, tls)
    except OSError as error:
        raise StackError(
            f"cannot listen on {address[0]}:{address[1]} ({error.strerror}): check whether something else does, or "
            "choose a different --listen."
        ) from error
    log.info("agent_started", agent=agent.name, address=f"{address[0]}:{agent.port}", brokers=len(agent.brokers))
    health.is_running = True
    try:
        while not stop.is_set():
            health.pulse.beat()
            metrics.show(agent)
            await asyncio.sleep(SHOWN_S)
    finally:
        await agent.close()


def read_brokers(file: Path, ca_file: Path | None) -> dict[str, BrokerAddress]:
    """Return where clients of each broker connect; raise AgentError if the file does not say so."""
    try:
        document = parse_json(file.read_text(encoding="utf-8-sig"))
        if not isinstance(document, dict) or not document:
            raise ValueError("it is not a JSON object with brokers")
        urls = {str(name): urlsplit(str(url)) for name, url in document.items()}
        for name, url in urls.items():
            if url.scheme not in SCHEMES or not url.hostname or url.username:
                raise ValueError(f"{name} is at {url.geturl()!r}, not at nats://, tls://, mqtt:// or mqtts://HOST:PORT")
        if len({SCHEMES[url.scheme][0] for url in urls.values()}) > 1:
            raise ValueError("an agent speaks one protocol, but these brokers speak NATS and MQTT")
        ports = {name: url.port or SCHEMES[url.scheme][1] for name, url in urls.items()}
    except OSError as error:
        raise AgentError(describe_os_error(error)) from error
    except ValueError as error:
        raise AgentError(
            f"{file} does not list where clients connect to brokers ({error}): it must be JSON such as {FORM}."
        ) from error
    try:
        tls = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise AgentError(f"--ca-file {ca_file} cannot be used ({error}): it must be PEM.") from error
    return {
        name: BrokerAddress(name, str(url.hostname), ports[name], tls if url.scheme in WITH_TLS else None, url.scheme)
        for name, url in urls.items()
    }


def _session_of(scheme: str) -> type[ClientSession[Any]]:
    if SCHEMES[scheme][0] == "nats":
        return NatsSession
    try:
        from regraft.producers.agents.mqtt_client_side import MqttSession
    except ImportError as error:
        raise AgentError("an agent for MQTT needs the extra mqtt: pip install 'regraft[mqtt]'.") from error
    return MqttSession


def _listening_tls(options: AgentOptions) -> ssl.SSLContext | None:
    files = options.certificate_file, options.key_file
    if not any(files):
        return None
    if not all(files):
        raise AgentError("--certificate-file and --key-file go together: give both, or neither.")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(str(files[0]), files[1])
    except (OSError, ssl.SSLError) as error:
        raise AgentError(
            f"the certificate for clients cannot be used ({error}): --certificate-file and --key-file must be PEM, and "
            "belong together."
        ) from error
    return context
