"""Settings of a whole run: flags over environment over a TOML file over the defaults of each stage.

In: flags, ``REGRAFT_...`` variables, one TOML file. Out: one frozen value with each stage's own frozen settings inside,
or one SettingsError that lists every fault. The stages' defaults stand in the stages; only what the composition adds
stands here. Reading a setting from anywhere else does not belong anywhere.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import Field, create_model
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings.exceptions import SettingsError as SourceError

from infra.kafka_access import KafkaAccess, KafkaSecurity
from infra.run_clock import RunClock
from regraft.settings.scenarios import SCENARIOS, STOCKS
from regraft.settings.settings_model import (
    NONE_WORD,
    SettingsModel,
    chosen_names,
    collect_faults,
    settings_model,
    to_dataclass,
)
from schemas.topics import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from alerts.alert_settings import AlertSettings
    from controller.controller_settings import ControllerSettings
    from dashboard.dashboard_settings import DashboardSettings
    from producers.emulator_settings import EmulatorSettings
    from streaming.streaming_settings import StreamingSettings

ENVIRONMENT_PREFIX = "REGRAFT_"
FILE_VARIABLE = "REGRAFT_SETTINGS"
# Names that operators of other tools expect, beside REGRAFT_KAFKA__BOOTSTRAP and REGRAFT_REDIS__URL.
SHORT_NAMES = {
    "REGRAFT_KAFKA_BOOTSTRAP": ("kafka", "bootstrap"),
    "REGRAFT_KAFKA_NAMESPACE": ("kafka", "namespace"),
    "REGRAFT_REDIS_URL": ("redis", "url"),
}
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
GRACE_WINDOWS_MAX = 3  # A longer wait would make every decision rest on an overlay of long ago.
FLUSHES_PER_WINDOW_MIN = 4  # Fewer, and one late batch alone makes a window incomplete.

Flags = Mapping[str, Mapping[str, Any]]


class SettingsError(ValueError):
    """Some settings are wrong; ``faults`` holds all of them, one sentence each."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What all stages of one run share.

    ``seed``: of every random choice. The same seed gives the same overlay, traffic and choices.
    ``directory``: where a run keeps its inventory, Spark's checkpoint and the status files of its stages.
    ``log_level``: the least that stages log: debug, info, warning, error or critical.
    ``clock_speed``: how many seconds of the run pass in one of wall time; 1 is the wall clock, more is for long runs in
    a short time. ``clock_origin_ms``: the wall time, in ms since 1970, from which on a clock at another speed runs; all
    processes need the same. 0 for none.
    """

    seed: int = 1
    directory: Path = Path("out/run")
    log_level: str = "info"
    clock_speed: float = 1.0
    clock_origin_ms: int = 0

    @property
    def clock(self) -> RunClock:
        """What time it is in this run."""
        return RunClock(self.clock_origin_ms, self.clock_speed)

    def faults(self) -> list[str]:
        """Return what is wrong, one sentence each."""
        found = self.clock.faults()
        if self.log_level not in LOG_LEVELS:
            found.append(f"log_level is {self.log_level!r}: one of {', '.join(LOG_LEVELS)}")
        return found


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """The Kafka cluster; the demo starts one of its own instead.

    ``bootstrap``: its servers as host:port, several with commas. ``namespace``: prefix of all topic names.
    ``security``: TLS and SASL.
    """

    bootstrap: str = "127.0.0.1:9092"
    namespace: str = DEFAULT_NAMESPACE
    security: KafkaSecurity = field(default_factory=KafkaSecurity)

    @property
    def access(self) -> KafkaAccess:
        """How commands reach Kafka."""
        return KafkaAccess(self.bootstrap, security=self.security)


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """The Valkey or Redis that holds the live view, which can be rebuilt from Kafka at any time.

    ``url``: redis://[:password@]host:port/database or unix://[:password@]path. The value none runs without a live view.
    """

    url: str | None = None


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The Spark session of the streaming stage, where it is not started by spark-submit.

    ``master``: Spark's master URL. ``driver_memory_mb``: heap of the driver, in which local mode does all its work.
    """

    master: str = "local[2]"
    driver_memory_mb: int = 1024


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """The demo's overlay and its course.

    ``scenario``: stocks (quotes over a tree, interests that shift) or chord (mobile users of a city on a Chord ring).
    ``brokers``: how many there are, each on a PlanetLab host as long as there are hosts. ``degree_max``: links a broker
    of a tree may have. ``running_s``: how long traffic runs once everything is up. ``regime_change_share``: when, as a
    share of that time, the interests of stocks shift. ``drain_s_max``: how long the end may wait for the last windows
    and for a plan under way. ``kill_every_s``: with --chaos, the least pause between two kills; a window must close
    before the next, too.
    ``shadow_planners``: what the demo takes for controller.shadow_planners where nobody sets that: the paper's planner,
    and ours without moves of publishers, to show beside the acting one what these add.
    ``horizon_lifetimes``: the same for controller.horizon_lifetimes; shorter than there, as the demo's interests shift
    after four lifetimes and a half: looking back over all of them saves less.
    """

    scenario: str = STOCKS
    brokers: int = 40
    degree_max: int = 8
    running_s: float = 180.0
    regime_change_share: float = 0.5
    drain_s_max: float = 60.0
    kill_every_s: float = 20.0
    shadow_planners: tuple[str, ...] = ("swap_links_ci", "swap_links_cost")
    horizon_lifetimes: float = 1.0

    def faults(self) -> list[str]:
        """Return what is wrong, one sentence each."""
        found = []
        if self.scenario not in SCENARIOS:
            found.append(f"scenario is {self.scenario!r}: one of {', '.join(SCENARIOS)}")
        if self.brokers < 3:
            found.append(f"brokers is {self.brokers}: at least 3, with fewer there is no link to swap")
        if self.degree_max < 2:
            found.append(f"degree_max is {self.degree_max}: a tree over more than two brokers needs at least 2")
        if self.running_s < 20:
            found.append(f"running_s is {self.running_s:g}: at least 20, or no window closes in time to act on")
        if not 0 < self.regime_change_share < 1:
            found.append(
                f"regime_change_share is {self.regime_change_share:g}: between 0 and 1, inside the running time"
            )
        if self.drain_s_max <= 0:
            found.append(f"drain_s_max is {self.drain_s_max:g}: above 0, the last notifications need time to arrive")
        if self.kill_every_s < 5:
            found.append(f"kill_every_s is {self.kill_every_s:g}: at least 5, a service needs time to come back")
        return found


@dataclass(frozen=True)
class Settings:
    """Everything one run is told.

    ``given`` holds all values as they were read, ``chosen`` the names (``controller.planner``) that do not stand at
    their default because nobody gave them.
    """

    run: RunSettings
    kafka: KafkaSettings
    redis: RedisSettings
    spark: SparkSettings
    demo: DemoSettings
    emulator: EmulatorSettings
    streaming: StreamingSettings
    controller: ControllerSettings
    alerts: AlertSettings
    dashboard: DashboardSettings
    given: Mapping[str, Any] = field(default_factory=dict)
    chosen: frozenset[str] = field(default=frozenset(), compare=False)

    def to_environment(self) -> dict[str, str]:
        """Return all settings as environment variables, for a child process that must run with exactly these."""
        return dict(_environment_lines(self.given, ENVIRONMENT_PREFIX))

    def to_record(self) -> dict[str, Any]:
        """Return all settings as plain values for ``run.json``, without passwords and secrets."""
        record = json.loads(json.dumps(self.given, default=str))
        if self.redis.url is not None:
            record["redis"]["url"] = "given"
        if self.dashboard.secret is not None:
            record["dashboard"]["secret"] = "given"
        for name in ("targets", "webhooks"):  # URLs that may hold tokens anywhere
            record["alerts"][name] = ["given"] * len(record["alerts"][name])
        return cast(dict[str, Any], record)


@dataclass(frozen=True, slots=True)
class Section:
    """One table of the settings: the dataclass it fills, and the fields that the composition fills itself."""

    shape: type[Any]
    composed: frozenset[str] = frozenset()
    defaults: Mapping[str, object] = field(default_factory=dict)


@cache
def sections() -> dict[str, Section]:
    """Return the sections by name, in the order of the example file; those of planners come beside these."""
    from alerts.alert_settings import AlertSettings
    from controller.controller_settings import ControllerSettings
    from dashboard.dashboard_settings import DashboardSettings
    from producers.emulator_settings import EmulatorSettings
    from streaming.streaming_settings import StreamingSettings

    shared = {"bootstrap", "security", "namespace", "seed", "status_file", "inventory_path", "redis_url", "clock"}
    return {
        "run": Section(RunSettings),
        "kafka": Section(KafkaSettings, frozenset({"security"})),  # there is nothing to set in it yet
        "redis": Section(RedisSettings),
        "spark": Section(SparkSettings),
        "demo": Section(DemoSettings),
        "emulator": Section(EmulatorSettings, frozenset(shared)),
        "streaming": Section(StreamingSettings, frozenset({*shared, "checkpoint_directory"})),
        "controller": Section(ControllerSettings, frozenset({*shared, "planners"})),
        "alerts": Section(AlertSettings, frozenset({*shared, "window_ms"})),
        "dashboard": Section(DashboardSettings, frozenset(shared)),
    }


@cache
def section_models() -> dict[str, type[SettingsModel]]:
    """Return the generated model of each section."""
    return {
        name: settings_model(section.shape, name, section.composed, section.defaults)
        for name, section in sections().items()
    }


def load_settings(flags: Flags | None = None, file: Path | None = None) -> Settings:
    """Return the settings of a run; raise SettingsError with every fault at once.

    ``file`` defaults to the one that ``REGRAFT_SETTINGS`` names, if any.
    """
    from regraft.settings.planner_models import read_planners  # Most commands need not wait for numpy.

    with collect_faults() as faults:
        tables = _read_toml(file or _named_file(), faults)
        sources = _read_sources(flags or {}, tables, faults)
        models = {name: cast(SettingsModel, getattr(sources, name)) for name in section_models()}
        planners = read_planners(sources.planners, _chains(models["controller"]), faults)
        settings = _compose(models, planners)
        faults += _stage_faults(settings) + relation_faults(settings)
    if faults:
        raise SettingsError(list(dict.fromkeys(faults)))  # a table is looked at again once its faults are out
    return settings


def _chains(controller: Any) -> tuple[str, ...]:
    return (controller.planner, *controller.shadow_planners)


def _named_file() -> Path | None:
    named = os.environ.get(FILE_VARIABLE)
    return Path(named) if named else None


def _read_toml(file: Path | None, faults: list[str]) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        faults.append(f"settings file {file} cannot be read ({error.strerror}): check its name and permissions")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        faults.append(f"settings file {file} is not TOML ({error}): `regraft settings --example` shows its form")
    return {}


def _read_sources(flags: Flags, tables: Mapping[str, Any], faults: list[str]) -> Any:
    class Sources(SettingsModel, BaseSettings):
        model_config = SettingsConfigDict(
            env_prefix=ENVIRONMENT_PREFIX,
            env_nested_delimiter="__",
            env_ignore_empty=True,
            extra="forbid",
            frozen=True,
        )

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            short = InitSettingsSource(settings_cls, init_kwargs=_short_named())
            from_file = InitSettingsSource(settings_cls, init_kwargs=dict(tables))
            return init_settings, env_settings, short, from_file

    fields: dict[str, Any] = {name: (model, Field(default_factory=model)) for name, model in section_models().items()}
    fields["planners"] = (dict[str, Any], Field(default_factory=dict))  # Which there are depends on what is named.
    model = create_model("Sources", __base__=Sources, **fields)
    try:
        return model(**{name: dict(values) for name, values in flags.items()})
    except SourceError as error:
        faults.append(f"the environment cannot be read ({error}): values of lists must be JSON")
        defaults: dict[str, Any] = {name: each() for name, each in section_models().items()}
        return model.model_construct(**defaults, planners={})


def _short_named() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for variable, (section, name) in SHORT_NAMES.items():
        if os.environ.get(variable):
            found.setdefault(section, {})[name] = os.environ[variable]
    return found


def _compose(models: Mapping[str, SettingsModel], planners: Mapping[str, SettingsModel]) -> Settings:
    """Fill what the stages share, so that no two of them can disagree."""
    from regraft.settings.planner_models import to_planner_settings

    shapes = {name: section.shape for name, section in sections().items()}
    run: RunSettings = to_dataclass(models["run"], RunSettings)
    kafka: KafkaSettings = to_dataclass(models["kafka"], KafkaSettings)
    redis: RedisSettings = to_dataclass(models["redis"], RedisSettings)
    shared = {"bootstrap": kafka.bootstrap, "security": kafka.security, "namespace": kafka.namespace}
    inventory_path = run.directory / "inventory.json"

    def stage(name: str, **own: Any) -> Any:
        status_file = run.directory / f"{name}.json"
        return to_dataclass(models[name], shapes[name], **shared, status_file=status_file, **own)

    return Settings(
        run=run,
        kafka=kafka,
        redis=redis,
        spark=to_dataclass(models["spark"], SparkSettings),
        demo=to_dataclass(models["demo"], DemoSettings),
        emulator=stage("emulator", seed=run.seed, clock=run.clock, inventory_path=inventory_path),
        streaming=stage("streaming", checkpoint_directory=run.directory / "checkpoint", inventory_path=inventory_path),
        controller=stage(
            "controller",
            seed=run.seed,
            clock=run.clock,
            redis_url=redis.url,
            inventory_path=inventory_path,
            planners=to_planner_settings(planners),
        ),
        alerts=stage(
            "alerts",
            clock=run.clock,
            redis_url=redis.url,
            window_ms=models["streaming"].window_ms,  # type: ignore[attr-defined]  # the model is generated
        ),
        dashboard=stage("dashboard", redis_url=redis.url, inventory_path=inventory_path),
        given={
            **{name: model.model_dump() for name, model in models.items()},
            "planners": {name: model.model_dump() for name, model in planners.items()},
        },
        chosen=frozenset(name for model in (*models.values(), *planners.values()) for name in chosen_names(model)),
    )


def _stage_faults(settings: Settings) -> list[str]:
    from controller.decide.find_planners import own_faults, planner_faults  # Most commands need not wait for numpy.

    found = [
        f"{name}: {fault}"
        for name in sections()
        if hasattr(getattr(settings, name), "faults")
        for fault in getattr(settings, name).faults()
    ]
    found += [f"controller: {fault}" for fault in planner_faults(settings.controller)]
    return found + own_faults(settings.controller)


def relation_faults(settings: Settings) -> list[str]:
    """Return what is wrong between the stages, which no stage can see by itself."""
    found: list[str] = []
    streaming, controller = settings.streaming, settings.controller
    if streaming.grace_ms >= GRACE_WINDOWS_MAX * streaming.window_ms:
        found.append(
            f"streaming.grace_ms is {streaming.grace_ms}, less than {GRACE_WINDOWS_MAX} windows of "
            f"{streaming.window_ms} ms are wanted: shorten the grace or lengthen streaming.window_ms"
        )
    newest_ms = streaming.window_ms + streaming.grace_ms + streaming.trigger_ms
    if controller.decision.window_age_ms_max <= newest_ms:
        found.append(
            f"controller.decision.window_age_ms_max is {controller.decision.window_age_ms_max}, a window is up to "
            f"{newest_ms} ms old when the next one closes: raise it above that, or every state is stale"
        )
    return found + _port_faults(settings) + _clock_faults(settings)


def _port_faults(settings: Settings) -> list[str]:
    """Return which stages want the same port for their metrics."""
    taken: dict[int, str] = {}
    found = []
    for name in sections():
        port = getattr(getattr(settings, name), "metrics_port", None)
        if port is None:
            continue
        if port in taken:
            found.append(f"{name}.metrics_port is {port}, that of {taken[port]}: give each stage a port of its own")
        taken.setdefault(port, name)
    return found


def _clock_faults(settings: Settings) -> list[str]:
    """Return what cannot be at a clock that is not the wall's: Kafka's timestamps are always wall time."""
    streaming, speed = settings.streaming, settings.run.clock_speed
    if speed == 1.0:
        return []
    return [
        f"streaming.{name} is {value} at run.clock_speed {speed:g}: set it to none, event times run away from Kafka's"
        for name, value in (("future_ms_max", streaming.future_ms_max), ("past_ms_max", streaming.past_ms_max))
        if value is not None
    ]


def _environment_lines(values: Mapping[str, Any], prefix: str) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for name, value in values.items():
        variable = f"{prefix}{name.upper()}"
        if isinstance(value, Mapping):
            lines += _environment_lines(value, variable + "__")
        else:
            lines.append((variable, setting_text(value)))
    return lines


def setting_text(value: object) -> str:
    """Return a setting's value as the environment takes it."""
    if value is None:
        return NONE_WORD
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, (list, tuple, bool)):
        return json.dumps(value, default=str)
    return str(value)
