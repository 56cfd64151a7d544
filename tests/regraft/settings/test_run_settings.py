import pickle
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import pytest

from regraft.commands.parse_assignments import parse_assignments
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.producers.emulator.due_heartbeats import HeartbeatRule
from regraft.settings.fixed_settings import at_speed
from regraft.settings.named_tables import planner_models
from regraft.settings.run_settings import SettingsError, load_settings, section_models, sections
from regraft.settings.settings_example import example_text, servers_text, settings_text, toml_text
from regraft.settings.settings_model import SettingsModel, collect_errors, settings_model, to_dataclass

SETTINGS_MAX = 150  # It only shrinks.


def _errors(**given: object) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        load_settings(**given)  # type: ignore[arg-type]
    return caught.value.errors


def test_without_anything_given_every_stage_has_its_own_defaults() -> None:
    """A run needs no settings file, and no default is defined twice."""
    settings = load_settings()
    for name, shape in sections().items():
        made = getattr(settings, name)
        for each in section_models()[name].model_fields:
            default = getattr(shape, each, None)
            if isinstance(default, (int, float, str, bool)):
                assert getattr(made, each) == default


def test_flags_override_environment_file_and_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The closer a setting is to the call, the higher its priority."""
    file = tmp_path / "own.toml"
    file.write_text("[streaming]\nwindow_ms = 6000\ngrace_ms = 1000\nshards = 9\n")
    monkeypatch.setenv("REGRAFT_STREAMING__WINDOW_MS", "7000")
    monkeypatch.setenv("REGRAFT_STREAMING__GRACE_MS", "1500")
    streaming = load_settings({"streaming": {"window_ms": 8000}}, file).streaming
    assert (streaming.window_ms, streaming.grace_ms, streaming.shards) == (8000, 1500, 9)
    assert streaming.records_per_trigger_max == 60_000


def test_those_who_report_know_the_windows() -> None:
    """Idle brokers send around their ends, by the grace of the job, so no one gives these times twice."""
    settings = load_settings({"streaming": {"window_ms": 8_000, "grace_ms": 1_500}})
    for reporting in (settings.emulator, settings.node):
        assert reporting.heartbeats == HeartbeatRule(250.0, 8_000, 1_500)
    assert at_speed(settings, 8.0).emulator.heartbeats == HeartbeatRule(1_000.0, 8_000, 1_500)


def test_the_file_can_be_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """REGRAFT_SETTINGS names the file if no flag does."""
    file = tmp_path / "own.toml"
    file.write_text("[run]\nseed = 9\n")
    monkeypatch.setenv("REGRAFT_SETTINGS", str(file))
    assert load_settings().run.seed == 9


def test_common_names_for_servers_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    """REGRAFT_KAFKA_BOOTSTRAP and REGRAFT_REDIS_URL are what compose files set; the full names override them."""
    monkeypatch.setenv("REGRAFT_KAFKA_BOOTSTRAP", "kafka:9092")
    monkeypatch.setenv("REGRAFT_REDIS_URL", "redis://valkey:6379/0")
    settings = load_settings()
    assert settings.kafka.bootstrap == settings.controller.bootstrap == settings.streaming.bootstrap == "kafka:9092"
    assert settings.controller.redis_url == "redis://valkey:6379/0"
    monkeypatch.setenv("REGRAFT_KAFKA__BOOTSTRAP", "other:9092")
    assert load_settings().kafka.bootstrap == "other:9092"


def test_shared_settings_cannot_differ() -> None:
    """Seed, namespace and inventory are given once and reach every stage."""
    settings = load_settings({"run": {"seed": 4, "directory": "lab"}, "kafka": {"namespace": "lab"}})
    assert settings.emulator.seed == settings.controller.seed == 4
    assert settings.emulator.namespace == settings.streaming.namespace == settings.controller.namespace == "lab"
    assert settings.emulator.inventory_path == settings.controller.inventory_path == Path("lab/inventory.json")


def test_every_stage_reaches_the_same_kafka_under_its_own_name() -> None:
    """Servers and security are given once; Kafka's log distinguishes the stages."""
    settings = load_settings({"kafka": {"bootstrap": "kafka:9092"}})
    stages = ("emulator", "streaming", "controller", "alerts", "dashboard")
    for name in stages:
        assert getattr(settings, name).kafka == KafkaAccess("kafka:9092", f"regraft-{name}", settings.kafka.security)
    assert settings.kafka.access == KafkaAccess("kafka:9092", "regraft", settings.kafka.security)


def test_all_errors_are_listed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong types, unknown names, wrong values and wrong relations are listed once each, from any source."""
    file = tmp_path / "own.toml"
    file.write_text('[streaming]\nwindow_ms = "long"\n[colours]\nsky = "blue"\n[controller.decision]\npay_bac_s = 1\n')
    monkeypatch.setenv("REGRAFT_RUN__SEED", "many")
    errors = _errors(flags={"demo": {"degree_max": 1, "kill_every_s": 0}, "streaming": {"grace_ms": 60_000}}, file=file)
    for wanted in (
        "streaming.window_ms is 'long'",
        "colours is not a setting",
        "controller.decision.pay_bac_s is not a setting: did you mean pay_back_s?",
        "run.seed is 'many'",
        "demo: degree_max is 1",
        "demo: kill_every_s is 0",
        "streaming.grace_ms is 60000",
    ):
        assert sum(wanted in error for error in errors) == 1, (wanted, errors)


def test_a_missing_or_broken_file_is_a_error(tmp_path: Path) -> None:
    """The sentence names the file and what to do."""
    assert "absent.toml cannot be read" in _errors(file=tmp_path / "absent.toml")[0]
    broken = tmp_path / "broken.toml"
    broken.write_text("[run\n")
    assert "is not TOML" in _errors(file=broken)[0]


@pytest.mark.parametrize("table", [*sections(), "planners", "connectors", "controller.members", "kafka.security"])
@pytest.mark.parametrize("value", ['"redis://:hunter2@a:1"', "3", "[]", "[{}]"])
def test_a_table_that_is_given_as_a_value_is_named(table: str, value: str, tmp_path: Path) -> None:
    """The answer names the table, not the model that reads it, and does not repeat a value that may be secret."""
    file = tmp_path / "own.toml"
    file.write_text(f"{table} = {value}\n")
    with pytest.raises(SettingsError) as caught:
        load_settings(file=file)
    assert caught.value.errors == (f"{table} is given as a value: write a table, as in [{table}]",)


def test_relations_between_stages_are_checked() -> None:
    """A state must not be stale before the next window can close, whatever the length of windows."""
    for window_ms in (1_000, 5_000, 60_000):
        given = {"window_ms": window_ms, "catch_up_grace_ms": 3 * window_ms}
        (error,) = _errors(flags={"streaming": given | {"grace_ms": 3 * window_ms}})
        assert f"it must be less than 3 windows of {window_ms} ms" in error
        settings = load_settings({"streaming": given | {"grace_ms": 3 * window_ms - 1}})
        newest_ms = 4 * window_ms + settings.streaming.trigger_ms
        assert newest_ms < settings.controller.decision.window_age_ms_max


def test_every_setting_is_described() -> None:
    """Each setting in the example file has a sentence, alone or with its neighbours."""

    def undescribed(model: type[SettingsModel]) -> list[str]:
        nested = {name: getattr(model(), name) for name in model.model_fields}
        return [
            f"{model.setting_path}.{name}"
            for name, field in model.model_fields.items()
            if not field.description and not isinstance(nested[name], SettingsModel)
        ] + [name for value in nested.values() if isinstance(value, SettingsModel) for name in undescribed(type(value))]

    models = [*section_models().values(), *planner_models().values()]
    assert [name for model in models for name in undescribed(model)] == []


def test_a_child_process_gets_exactly_the_same_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's resolved settings reach its children through the environment, whatever that contained before."""
    given = {
        "run": {"seed": 11, "directory": "lab"},
        "redis": {"url": "redis://:secret@127.0.0.1:1/0"},
        "streaming": {"future_ms_max": None},
        "controller": {"dry_run": True, "degree_max": 5, "decision": {"noise_factor": 1.5}},
        "planners": {"swap_links_ci": {"horizon_hops": 3}},
    }
    settings = load_settings(given)
    monkeypatch.setenv("REGRAFT_RUN__SEED", "99")
    for name, value in settings.to_environment().items():
        monkeypatch.setenv(name, value)
    assert load_settings() == settings


@pytest.mark.parametrize(
    ("table", "name", "value"),
    [
        ("node", "ca_file", "a\0b"),
        ("run", "directory", "lab\n"),
        ("kafka", "bootstrap", "127.0.0.1\0:9092"),
        ("alerts", "webhooks", ["http://127.0.0.1/\0"]),
    ],
)
def test_a_control_character_in_any_setting_is_a_error(table: str, name: str, value: object) -> None:
    """A null in a file's name ends the process that opens it, and no child process can be given one."""
    errors = _errors(flags={table: {name: value}})
    assert [error for error in errors if error.startswith(f"{table}.{name} is ")], errors
    assert all("control character" in error for error in errors)


@pytest.mark.parametrize("table", ["emulator", "node", "streaming", "controller", "alerts"])
def test_a_host_for_metrics_without_a_port_is_a_error(table: str) -> None:
    """Nothing would be served there, and a supervisor that asks for /ready would wait."""
    assert _errors(flags={"run": {"metrics_host": "0.0.0.0"}}) == (
        "run.metrics_host is 0.0.0.0, but no stage has a metrics_port, so nothing is served: give a port, or leave it "
        "out",
    )
    settings = load_settings({"run": {"metrics_host": "0.0.0.0"}, table: {"metrics_port": 9_199}})
    assert getattr(settings, table).metrics_host == "0.0.0.0"


def test_when_the_share_is_lowered_is_a_error_if_it_may_not_be() -> None:
    """share_min 1, the default, switches this off."""
    (error,) = _errors(flags={"controller": {"sampling": {"deliveries_max": 500}}})
    assert "deliveries_max is 500, but share_min is 1" in error
    load_settings({"controller": {"sampling": {"deliveries_max": 500, "share_min": 0.25}}})


def test_a_null_in_the_name_of_a_secret_file_is_a_error() -> None:
    """The check of a password file opens it."""
    assert "control character" in _errors(flags={"kafka": {"security": {"key_password_file": "a\0"}}})[0]


def test_the_record_of_a_run_contains_no_password() -> None:
    """run.json may be passed around."""
    settings = load_settings({"redis": {"url": "redis://:hunter2@127.0.0.1:1/0"}})
    assert "hunter2" not in str(settings.to_record())
    assert "hunter2" not in settings_text(settings)


def test_printed_settings_can_be_read_again(tmp_path: Path) -> None:
    """`regraft settings` prints a file that gives the same settings."""
    settings = load_settings({"controller": {"planner": "swap_links_lmst"}, "demo": {"running_s": 60}})
    file = tmp_path / "printed.toml"
    file.write_text(settings_text(settings))
    assert load_settings(file=file) == settings


def test_the_example_has_every_setting_at_its_default(tmp_path: Path) -> None:
    """`regraft settings --example` prints a file that changes nothing."""
    file = tmp_path / "example.toml"
    file.write_text(example_text(), encoding="utf-8")
    assert load_settings(file=file) == load_settings()
    assert len(load_settings(file=file).chosen) == len(re.findall(r"^\w+ = ", example_text(), re.MULTILINE))


def test_there_are_few_settings() -> None:
    """A value that no operator has a reason to change is a constant, with the reason as a comment."""
    assert len(re.findall(r"^\w+ = ", example_text(), re.MULTILINE)) <= SETTINGS_MAX


def test_quiet_hours_may_name_a_severity() -> None:
    """Alerts below it wait, below critical unless another is named."""
    alerts = load_settings({"alerts": {"quiet_hours": "22:00-07:00 UTC below warning"}}).alerts
    assert (alerts.quiet_span, alerts.quiet_below) == ("22:00-07:00 UTC", "warning")
    assert load_settings({"alerts": {"quiet_hours": "22:00-07:00 UTC"}}).alerts.quiet_below == "critical"
    assert _errors(flags={"alerts": {"quiet_hours": "22:00-07:00 UTC below all"}}) == (
        "alerts: quiet_hours is '22:00-07:00 UTC below all': the severity after 'below' must be one of info, warning, "
        "critical",
    )


def test_assignments_make_nested_tables() -> None:
    """--set takes TOML values, and plain words as text."""
    assert parse_assignments(
        ["run.seed=3", "controller.decision.noise_factor=1.5", "controller.planner=swap_links_ci"]
    ) == {
        "run": {"seed": 3},
        "controller": {"decision": {"noise_factor": 1.5}, "planner": "swap_links_ci"},
    }
    with pytest.raises(SettingsError) as caught:
        parse_assignments(["seed=3", "run.seed", "controller.decision=3", "controller.decision.noise_factor=1"])
    assert len(caught.value.errors) == 3


@dataclass(frozen=True)
class _Inner:
    """Inner."""

    pace_ms: Annotated[int, "how fast; not 0"] = 10
    pauses: int = 1


@dataclass(frozen=True)
class _Outer:
    """Outer."""

    address: str
    inner: Annotated[_Inner, "how fast"] = field(default_factory=lambda: _Inner(pace_ms=20, pauses=2))
    limit: Annotated[int | None, "how many"] = 3
    step: int = 4


@dataclass(frozen=True)
class _Incomplete:
    """Incomplete."""

    address: Annotated[str, "where"]


def test_nested_defaults_and_no_value_survive_the_model() -> None:
    """Only fields with a text are settings; a nested dataclass keeps its owner's defaults; "none" stands for None."""
    model = settings_model(_Outer, "outer")
    assert model().model_dump() == {"inner": {"pace_ms": 20}, "limit": 3}
    with collect_errors() as errors:
        made = model.model_validate({"limit": "none", "inner": {"pace_ms": "7"}})
    assert errors == []
    assert to_dataclass(made, _Outer, address="here") == _Outer("here", _Inner(7, 2), None)


def test_a_setting_has_a_default() -> None:
    """A setting that a run could not start without is refused at its definition."""
    with pytest.raises(TypeError, match="address has a text, so it is a setting, but no default"):
        settings_model(_Incomplete, "incomplete")


def test_values_are_written_as_toml() -> None:
    """Every kind of setting can be read back by a TOML parser."""
    for value in (True, 3, 2.5, 'a "quoted" path', ("a", "b")):
        read = tomllib.loads(f"x = {toml_text(value)}")["x"]
        assert read == (list(value) if isinstance(value, tuple) else value)


def test_chosen_settings_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting given by flag, variable or file is chosen, even at its default value; others are not."""
    file = tmp_path / "own.toml"
    file.write_text("[controller.decision]\nnoise_factor = 2.0\n")
    monkeypatch.setenv("REGRAFT_CONTROLLER__SHADOW_PLANNERS", '["swap_links_lmst"]')
    settings = load_settings({"run": {"seed": 1}}, file)
    assert settings.chosen == {"controller.decision.noise_factor", "controller.shadow_planners", "run.seed"}
    assert settings.controller.shadow_planners == ("swap_links_lmst",)


def test_a_secret_is_a_reference_in_every_record(tmp_path: Path) -> None:
    """Settings, run.json and a child's environment name the file of a password; none contains the password."""
    password = tmp_path / "password"
    password.write_text("hunter2")
    security = {"tls": True, "mechanism": "SCRAM-SHA-512", "username": "regraft", "password_file": str(password)}
    settings = load_settings({"kafka": {"security": security}, "redis": {"url": "redis://valkey"}})
    assert settings.controller.kafka.security.password == "hunter2"
    shown = [str(settings), str(settings.to_record()), settings_text(settings), str(settings.to_environment())]
    for each in shown:
        assert "hunter2" not in each
        assert str(password) in each


def test_commands_reach_the_same_servers_by_a_file(tmp_path: Path) -> None:
    """The secured demo writes them an ordinary settings file, which contains no password."""
    password = tmp_path / "password"
    password.write_text("hunter2")
    login = {"username": "regraft", "password_file": str(password)}
    settings = load_settings(
        {
            "kafka": {"bootstrap": "k:1", "security": {"tls": True, "mechanism": "PLAIN", **login}},
            "redis": {"url": "rediss://valkey:1/0", "security": login},
        }
    )
    file = tmp_path / "client.toml"
    file.write_text(servers_text(settings))
    read = load_settings(file=file)
    assert (read.kafka, read.redis) == (settings.kafka, settings.redis)
    assert "hunter2" not in file.read_text()


def test_errors_of_security_are_among_all_others(tmp_path: Path) -> None:
    """A run does not start without its credentials, and lists everything that is missing."""
    errors = _errors(
        flags={
            "kafka": {"security": {"mechanism": "PLAIN", "password_file": str(tmp_path / "absent"), "password": "x"}},
            "redis": {"url": "redis://valkey", "security": {"username": "regraft"}},
        }
    )
    for wanted in (
        "kafka.security.password is not a setting: did you mean password_file?",
        "kafka: security.password_file",
        "kafka: security.mechanism is PLAIN without tls",
        "kafka: security.mechanism is PLAIN without username",
        "redis: security.username is given without",
    ):
        assert sum(wanted in error for error in errors) == 1, (wanted, errors)


@pytest.mark.parametrize(
    "url", ["env:LIVE", "valkey:6379", "", "http://v:1", "redis://", "redis://v:x/0", "redis://[::1"]
)
def test_a_live_view_that_is_no_address_is_refused(url: str) -> None:
    """The sentence has no URL, which may hold a password."""
    (error,) = _errors(flags={"redis": {"url": url}})
    assert error.startswith("redis: url is not an address: give redis://HOST:PORT")


def test_errors_cross_processes_unchanged() -> None:
    """Benchmarks that run tasks in separate processes rely on this."""
    error = pickle.loads(pickle.dumps(SettingsError(["first error", "second error"])))
    assert (error.errors, str(error)) == (("first error", "second error"), "first error\nsecond error")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("REGRAFT_KAKFA_BOOTSTRAP", "did you mean REGRAFT_KAFKA_BOOTSTRAP?"),
        ("REGRAFT_SETTING", "did you mean REGRAFT_SETTINGS?"),
        ("REGRAFT_KAKFA__BOOTSTRAP", "did you mean REGRAFT_KAFKA__BOOTSTRAP?"),
        ("REGRAFT_WEATHER__SUN", "there is no such table"),
    ],
)
def test_a_misspelt_variable_is_not_ignored(name: str, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a command talks to the default server, and nothing says why."""
    monkeypatch.setenv(name, "x:1")
    assert _errors() == (f"the variable {name} is not read: {hint}",)


def test_variables_of_others_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords have names of the operator's choice, and Kubernetes sets variables for each service."""
    for name in ("REGRAFT_KAFKA_PASSWORD", "REGRAFT_CONTROLLER_SERVICE_HOST", "REGRAFT_DASHBOARD_PORT_8090_TCP"):
        monkeypatch.setenv(name, "x")
    load_settings()


@pytest.mark.parametrize("bootstrap", ["kafka", "kafka:", ":9092", "a:1,b", "a:70000", "a:x"])
def test_servers_without_a_port_are_refused(bootstrap: str) -> None:
    """Clients would search for them until they give up."""
    (error,) = {each for each in _errors(flags={"kafka": {"bootstrap": bootstrap}}) if each.startswith("kafka: ")}
    assert "is not an address: give the servers as host:port" in error


@pytest.mark.parametrize("namespace", ['a"b', "", "a b", "x" * 129])
def test_a_namespace_that_kafka_refuses_is_refused(namespace: str) -> None:
    """It begins the names of all topics."""
    errors = _errors(flags={"kafka": {"namespace": namespace}})
    assert any("letters, digits, dots, _ or -, as Kafka requires" in error for error in errors)
