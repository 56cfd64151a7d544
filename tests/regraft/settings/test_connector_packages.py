"""Connectors of other packages: found by their entry points, configured by the settings, made by a node."""

from pathlib import Path

import pytest

from regraft.infra.process import plug_ins
from regraft.producers.nodes.connectors.connector import ConnectorError
from regraft.producers.nodes.connectors.find_connectors import CONNECTORS, connector_spec, spec_of
from regraft.producers.nodes.node_setup import connector_of
from regraft.settings.run_settings import Settings, SettingsError, load_settings
from tests.controller.planner_packages import PlannerPackages, planner_packages

GROUP = "regraft.connectors"
SOURCE = """
from dataclasses import dataclass
from typing import Annotated

from regraft.api.connectors import ConnectorContext, ConnectorSettings, ConnectorSpec, PlainConnector


@dataclass(frozen=True)
class BusSettings(ConnectorSettings):
    '''Settings of a node next to a bus.'''

    line: Annotated[str, "which line of the bus"] = "a"

    def errors(self):
        return [] if self.line else ["line is empty: name one"]


class BusConnector(PlainConnector):
    def __init__(self, context, settings):
        self.context, self.line = context, settings.line


SPEC = ConnectorSpec(
    name="bus", secure_scheme="buss", settings=BusSettings, connect=BusConnector, broker="a bus", form="bus://HOST:PORT"
)
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlannerPackages:
    return planner_packages(tmp_path, monkeypatch)


def settings_with(connector: str, **own: object) -> Settings:
    tables = {"connectors": {"bus": own}} if own else {}
    return load_settings({"node": {"broker": "b01", "connector": connector}, **tables})


def errors_of(connector: str, **own: object) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        settings_with(connector, **own)
    return caught.value.errors


def test_a_connector_of_another_package_is_configured_and_made(
    packages: PlannerPackages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named by the scheme of its address and configured in its own table, also in a child process."""
    packages.install("lines_one", SOURCE, group=GROUP, bus="SPEC")
    settings = settings_with("bus://h:1", line="b")
    made = connector_of(settings.node, "b01")
    assert (made.line, made.context.url, made.context.broker) == ("b", "bus://h:1", "b01")  # type: ignore[attr-defined]
    assert "connectors.bus.line" in settings.chosen
    for name, value in settings.to_environment().items():
        monkeypatch.setenv(name, value)
    assert load_settings() == settings
    secure = spec_of("buss://h:1")
    assert secure is not None
    assert secure.name == "bus"


def test_its_settings_are_checked_like_those_of_ours(packages: PlannerPackages) -> None:
    """Unknown and wrong ones, and those of another connector, in both directions."""
    packages.install("lines_two", SOURCE, group=GROUP, bus="SPEC")
    assert errors_of("bus://h:1", lines="b") == ("connectors.bus.lines is not a setting: did you mean line?",)
    assert errors_of("bus://h:1", line="") == ("connectors.bus: line is empty: name one",)
    (error,) = errors_of("mqtt://h:1", line="b")
    assert error.startswith("connectors.bus.line is b, but it belongs to the connector bus, and this node's connector")
    with pytest.raises(SettingsError) as caught:
        load_settings({"node": {"connector": "bus://h:1"}, "connectors": {"mqtt": {"log_file": "x"}}})
    assert caught.value.errors[0].startswith("connectors.mqtt.log_file is x, but it belongs to the connector mqtt")


def test_an_unknown_address_is_answered_with_all_that_are_known(packages: PlannerPackages) -> None:
    """Those of other packages included, of which none is imported."""
    packages.install("lines_three", "raise SystemError('imported')", group=GROUP, bus="SPEC")
    (error,) = errors_of("car://h:1")
    assert error == (
        "node: connector is 'car://h:1': there are nats://HOST:PORT, mqtt://HOST:PORT, amqp://HOST:PORT/VHOST, and "
        "tls, mqtts and amqps with TLS; and bus:// of other packages"
    )
    with pytest.raises(SettingsError) as caught:
        load_settings({"connectors": {"mqt": {}}})
    assert caught.value.errors == ("connectors.mqt: connector 'mqt' is unknown: did you mean mqtt?",)


BROKEN = """
    from regraft.api.connectors import ConnectorSettings, ConnectorSpec

    def spec(name, connect=print, settings=ConnectorSettings, **more):
        return ConnectorSpec(name=name, settings=settings, connect=connect, broker="a bus", form="bus://HOST", **more)

    number = 3
    other, plain, idle = spec("bus"), spec("plain", settings=dict), spec("idle", connect=None)
    two_words, odd = spec("two_words"), spec("odd", secure_scheme="even")
"""


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("number", "it is a int, not a ConnectorSpec"),
        ("other", "it calls itself 'bus', its entry point must have the same name"),
        ("plain", "its settings are <class 'dict'>, not a subclass of ConnectorSettings"),
        ("idle", "its connect is a NoneType, not a function"),
        ("two_words", "its name is the scheme of its addresses, so it has no underscore"),
        ("odd", "its secure_scheme is 'even', but must be 'odds', or empty without TLS"),
    ],
)
def test_an_invalid_connector_is_reported_if_it_is_named(packages: PlannerPackages, name: str, error: str) -> None:
    """One sentence at the start names the package that it is from."""
    packages.install(f"bad_{name}", BROKEN, group=GROUP, **{name: name})
    with pytest.raises(SettingsError) as caught:
        load_settings({"connectors": {name: {}}})
    text = f"connector {name!r} of bad_{name} (bad_{name}:{name}) is not a connector: {error}"
    assert caught.value.errors == (f"connectors.{name}: {text}",)


def test_a_package_that_cannot_be_used_affects_only_nodes_that_name_it(packages: PlannerPackages) -> None:
    """All others start as without it."""
    packages.install("lines_four", "import no_such_library", group=GROUP, bus="SPEC")
    (error,) = errors_of("bus://h:1")
    assert error.startswith("node: connector 'bus' cannot be imported from lines_four (lines_four:SPEC), Module")
    assert settings_with("mqtt://h:1").node.connector == "mqtt://h:1"


def test_the_name_of_a_connector_must_be_unique(packages: PlannerPackages) -> None:
    """It would be ambiguous which one opens."""
    packages.install("lines_five", SOURCE, group=GROUP, mqtt="SPEC")
    (error,) = errors_of("mqtt://h:1")
    assert error == (
        "node: connector 'mqtt' is installed more than once, in Regraft itself and in lines_five (lines_five:SPEC): "
        "uninstall all but one"
    )
    with pytest.raises(ConnectorError, match="'bos' is unknown"):
        connector_spec("bos")


def test_built_in_connectors_need_no_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are found in a checkout as well, whatever is installed."""
    monkeypatch.setattr(plug_ins, "entry_points", lambda **_: [])
    plug_ins.offered_parts.cache_clear()
    assert {spec_of(f"{name}://h:1"): name for name in CONNECTORS} == {spec: name for name, spec in CONNECTORS.items()}
    plug_ins.offered_parts.cache_clear()
