"""Settings of a whole run: flags over environment over a TOML file over the defaults of each stage.

In: flags, ``REGRAFT_...`` variables, one TOML file. Out: one frozen value that contains each stage's frozen settings,
or one SettingsError that lists every error. The stages' defaults are defined in the stages; only what the composition
adds is defined here. Settings are read nowhere else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from regraft.infra.orders.order_keys import OrderSettings
from regraft.infra.process.run_clock import RunClock
from regraft.schemas.sampled_blocks import share_error
from regraft.settings.demo_settings import DemoSettings
from regraft.settings.fixed_settings import RECORDED, at_speed, at_windows, fixed_values
from regraft.settings.read_sources import NAMED, Flags, named_file, read_sources, read_toml
from regraft.settings.server_settings import KafkaSettings, RedisSettings, SparkSettings
from regraft.settings.settings_environment import settings_environment, variable_errors
from regraft.settings.settings_model import (
    SettingsModel,
    chosen_names,
    collect_errors,
    has_secret,
    named_secret_files,
    settings_model,
    to_dataclass,
)

if TYPE_CHECKING:
    from regraft.alerts.alert_settings import AlertSettings
    from regraft.controller.settings.controller_settings import ControllerSettings
    from regraft.dashboard.dashboard_settings import DashboardSettings
    from regraft.producers.emulator_settings import EmulatorSettings
    from regraft.producers.node_settings import NodeSettings
    from regraft.producers.recordings.reading_bounds import ReadingBounds
    from regraft.streaming.streaming_settings import StreamingSettings

PATIENCE_MAX = 20.0
LOOPBACK = "127.0.0.1"
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
# A longer wait would base every decision on an overlay of long ago; and a window would be stale before the next one
# closes (controller.decision.window_age_ms_max).
GRACE_WINDOWS_MAX = 3


class SettingsError(ValueError):
    """Some settings are wrong; ``errors`` holds all of them, one sentence each."""

    def __init__(self, errors: Sequence[str]) -> None:
        super().__init__(tuple(errors))  # The arguments as given, so that it can be unpickled.
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return "\n".join(self.errors)


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What all stages of one run share."""

    seed: Annotated[int, "seed of all random choices"] = 1
    directory: Annotated[
        Path,
        "directory of a run's inventory, Spark checkpoint and status files",
    ] = Path("out/run")
    log_level: Annotated[str, "lowest level logged: debug, info, warning, error or critical"] = "info"
    clock_speed: Annotated[
        float,
        "seconds of the run per second of wall time",
    ] = 1.0
    clock_origin_ms: Annotated[
        int,
        "wall time in ms since 1970 at which such a clock starts, the same for all processes; 0 for none",
    ] = 0
    patience: Annotated[
        float,
        "factor on the time that services may take to start (Kafka 90 s, a stage 180 s); raise it on slow machines",
    ] = 1.0

    metrics_host: Annotated[
        str,
        "host on which stages with a metrics_port listen",
    ] = LOOPBACK
    sample_share: Annotated[
        float,
        "share of notifications that all brokers report in full, 1, 0.5, 0.25 and so on; below 1, costs are estimates",
    ] = 1.0

    @property
    def clock(self) -> RunClock:
        """The clock of this run."""
        return RunClock(self.clock_origin_ms, self.clock_speed)

    def errors(self) -> list[str]:
        """Return what is wrong, one sentence each."""
        errors = self.clock.errors()
        if self.log_level not in LOG_LEVELS:
            errors.append(f"log_level is {self.log_level!r}: must be one of {', '.join(LOG_LEVELS)}")
        if not 1 <= self.patience <= PATIENCE_MAX:
            errors.append(
                f"patience is {self.patience:g}: must be between 1 and {PATIENCE_MAX:g} times the usual waits"
            )
        if error := share_error(self.sample_share):
            errors.append(f"sample_share {error}")
        return errors


@dataclass(frozen=True)
class Settings:
    """All settings of one run.

    ``given`` holds all values as read, ``chosen`` the names (such as ``controller.planner``) whose values were set
    explicitly or by a scenario, ``file`` the file of settings if that holds secrets.
    """

    run: RunSettings
    kafka: KafkaSettings
    redis: RedisSettings
    orders: OrderSettings
    spark: SparkSettings
    demo: DemoSettings
    emulator: EmulatorSettings
    node: NodeSettings
    streaming: StreamingSettings
    controller: ControllerSettings
    alerts: AlertSettings
    dashboard: DashboardSettings
    recordings: ReadingBounds
    given: Mapping[str, Any] = field(default_factory=dict)
    chosen: frozenset[str] = field(default=frozenset(), compare=False)
    file: Path | None = field(default=None, compare=False)

    @property
    def secret_files(self) -> tuple[Path, ...]:
        """The files that hold secrets."""
        return (*named_secret_files(self.given), *([self.file] if self.file is not None else []))

    def to_environment(self, withheld: Sequence[str] = ()) -> dict[str, str]:
        """Return all settings as environment variables, for a child process that must run with exactly these.

        Tables (``redis``) and settings (``dashboard.secret``) in ``withheld`` get their defaults.
        """
        given = {name: dict(values) for name, values in self.given.items()}
        for name in withheld:
            table, _, setting = name.partition(".")
            defaults = section_models()[table]().model_dump()
            given[table] |= {setting: defaults[setting]} if setting else defaults
        return settings_environment(given)

    def to_record(self) -> dict[str, Any]:
        """Return all settings and constants as plain values for ``run.json``, without passwords and secrets."""
        record = json.loads(json.dumps(self.given, default=str))
        if self.redis.url is not None:
            record["redis"]["url"] = "given"
        if self.dashboard.secret is not None:
            record["dashboard"]["secret"] = "given"
        for name in ("targets", "webhooks"):  # URLs, which may hold tokens anywhere
            record["alerts"][name] = ["given"] * len(record["alerts"][name])
        record[RECORDED] = fixed_values(self)
        return cast(dict[str, Any], record)


@cache
def sections() -> dict[str, type[Any]]:
    """Return the dataclass that each table fills, in the order of the settings' page, without those of planners."""
    from regraft.alerts.alert_settings import AlertSettings
    from regraft.controller.settings.controller_settings import ControllerSettings
    from regraft.dashboard.dashboard_settings import DashboardSettings
    from regraft.producers.emulator_settings import EmulatorSettings
    from regraft.producers.node_settings import NodeSettings
    from regraft.producers.recordings.reading_bounds import ReadingBounds
    from regraft.streaming.streaming_settings import StreamingSettings

    return {
        "run": RunSettings,
        "kafka": KafkaSettings,
        "redis": RedisSettings,
        "orders": OrderSettings,
        "spark": SparkSettings,
        "demo": DemoSettings,
        "emulator": EmulatorSettings,
        "node": NodeSettings,
        "streaming": StreamingSettings,
        "controller": ControllerSettings,
        "alerts": AlertSettings,
        "dashboard": DashboardSettings,
        "recordings": ReadingBounds,
    }


@cache
def section_models() -> dict[str, type[SettingsModel]]:
    """Return the generated model of each section."""
    return {name: settings_model(shape, name) for name, shape in sections().items()}


def load_settings(flags: Flags | None = None, file: Path | None = None) -> Settings:
    """Return the settings of a run. Raises SettingsError with all errors at once.

    ``file`` defaults to the one that ``REGRAFT_SETTINGS`` names, if any.
    """
    # Imports numpy, which most commands do not need.
    from regraft.settings.named_tables import read_connectors, read_planners

    with collect_errors() as errors:
        errors += variable_errors(os.environ, (*section_models(), *NAMED))
        file = file or named_file()
        tables = read_toml(file, errors)
        sources = read_sources(tuple(section_models().items()), flags or {}, tables, errors)
        models = {name: cast(SettingsModel, getattr(sources, name)) for name in section_models()}
        planners = read_planners(sources.planners, _chains(models["controller"]), errors)
        connectors = read_connectors(sources.connectors, cast(Any, models["node"]).connector, errors)
        settings = _compose(models, planners, connectors)
        errors += _stage_errors(settings) + relation_errors(settings)
    if errors:
        raise SettingsError(list(dict.fromkeys(errors)))  # a table with errors is validated twice
    return replace(settings, file=file) if has_secret(tables) else settings


def _chains(controller: Any) -> tuple[str, ...]:
    return (controller.planner, *controller.shadow_planners)


def _compose(
    models: Mapping[str, SettingsModel], planners: Mapping[str, SettingsModel], connectors: Mapping[str, SettingsModel]
) -> Settings:
    """Build the settings and fill in what stages share, so that they cannot disagree."""
    from regraft.settings.named_tables import to_connector_settings, to_planner_settings

    shapes = sections()
    run: RunSettings = to_dataclass(models["run"], RunSettings)
    kafka: KafkaSettings = to_dataclass(models["kafka"], KafkaSettings)
    redis: RedisSettings = to_dataclass(models["redis"], RedisSettings)
    shared = {"bootstrap": kafka.bootstrap, "security": kafka.security, "namespace": kafka.namespace}
    orders = to_dataclass(models["orders"], OrderSettings, directory=run.directory / "order-keys")
    # Shared by stages with a user interface.
    people = {"redis_url": redis.url, "redis_security": redis.security, "orders": orders}
    inventory = {"inventory_path": run.directory / "inventory.json"}
    common = {"seed": run.seed, "clock": run.clock, **inventory}
    served, beside = {"metrics_host": run.metrics_host}, to_connector_settings(connectors)
    windows = {name: getattr(models["streaming"], name) for name in ("window_ms", "grace_ms")}
    reported = {"sample_share": run.sample_share, **windows}

    def stage(name: str, **own: Any) -> Any:
        status_file = run.directory / f"{name}.json"
        return to_dataclass(models[name], shapes[name], **shared, status_file=status_file, **own)

    settings = Settings(
        run=run,
        kafka=kafka,
        redis=redis,
        orders=orders,
        spark=to_dataclass(models["spark"], SparkSettings),
        demo=to_dataclass(models["demo"], DemoSettings),
        emulator=stage("emulator", **common, **served, **reported).with_texts(),
        node=stage("node", **inventory, **served, **reported, connectors=beside),
        streaming=stage("streaming", **served, checkpoint_directory=run.directory / "checkpoint", **inventory),
        controller=stage("controller", **people, **common, **served, planners=to_planner_settings(planners)),
        alerts=stage("alerts", **people, **served, clock=run.clock, window_ms=windows["window_ms"]),
        dashboard=stage("dashboard", **people, **inventory),
        recordings=to_dataclass(models["recordings"], shapes["recordings"]),
        given=_dumped(models) | {"planners": _dumped(planners), "connectors": _dumped(connectors)},
        chosen=frozenset(
            name for each in (models, planners, connectors) for model in each.values() for name in chosen_names(model)
        ),
    )
    return at_windows(at_speed(settings, run.clock_speed), settings.streaming.window_ms)


def _dumped(models: Mapping[str, SettingsModel]) -> dict[str, Any]:
    return {name: model.model_dump() for name, model in models.items()}


def _stage_errors(settings: Settings) -> list[str]:
    from regraft.controller.planners.planner_registry import (  # Imports numpy, which most commands do not need.
        own_errors,
        planner_errors,
    )
    from regraft.producers.nodes.connectors.connector_errors import connector_errors

    errors = [
        f"{name}: {error}"
        for name in sections()
        if hasattr(getattr(settings, name), "errors")
        for error in getattr(settings, name).errors()
    ]
    errors += [f"controller: {error}" for error in planner_errors(settings.controller)]
    return errors + own_errors(settings.controller) + connector_errors(settings.node)


def relation_errors(settings: Settings) -> list[str]:
    """Return errors between the settings of several stages, which no stage can detect by itself."""
    errors: list[str] = []
    streaming = settings.streaming
    if streaming.grace_ms >= GRACE_WINDOWS_MAX * streaming.window_ms:
        errors.append(
            f"streaming.grace_ms is {streaming.grace_ms}, it must be less than {GRACE_WINDOWS_MAX} "
            f"windows of {streaming.window_ms} ms: shorten the grace or lengthen streaming.window_ms"
        )
    return errors + _port_errors(settings) + _clock_errors(settings)


def _port_errors(settings: Settings) -> list[str]:
    """Return an error for each stage whose metrics port is already used by another, and for a host without any port."""
    taken: dict[int, str] = {}
    errors: list[str] = []
    for name in sections():
        port = getattr(getattr(settings, name), "metrics_port", None)
        if port is None:
            continue
        if port in taken:
            errors.append(f"{name}.metrics_port is {port}, that of {taken[port]}: give each stage its own port")
        taken.setdefault(port, name)
    if not taken and settings.run.metrics_host != LOOPBACK:
        errors.append(
            f"run.metrics_host is {settings.run.metrics_host}, but no stage has a metrics_port, so nothing is served: "
            "give a port, or leave it out"
        )
    return errors


def _clock_errors(settings: Settings) -> list[str]:
    """Return settings that need the wall clock if the run has another: Kafka's timestamps are always wall time."""
    streaming, speed = settings.streaming, settings.run.clock_speed
    if speed == 1.0:
        return []
    if streaming.future_ms_max is None:
        return []
    return [
        f"streaming.future_ms_max is {streaming.future_ms_max} at run.clock_speed {speed:g}: set it to none, event "
        "times diverge from Kafka's"
    ]
