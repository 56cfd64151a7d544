"""Child processes of a run: what they import, wherever they are started, and when they start."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from regraft.infra.local.service import Service
from regraft.infra.local.supervise import ServiceFailedError, Supervisor
from regraft.settings.run_settings import load_settings
from regraft.stages.loop_services import ALERTS, EMULATOR, STREAMING, loop_service, start_fresh


@pytest.fixture
def child(tmp_path: Path) -> Service:
    """Return a process like those of a run that lists the settings, in a directory with folders named like ours."""
    for package in ("regraft", "alerts", "schemas"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(f"raise RuntimeError('somebody else has a {package}, too')\n")
    service = loop_service(ALERTS, load_settings({"run": {"directory": tmp_path / "run"}}))
    command = (*service.command[: service.command.index("regraft") + 1], "settings")
    return replace(service, command=command, directory=tmp_path, ready=lambda: False, finishes=True)


def test_folders_of_the_working_directory_do_not_replace_our_package(child: Service) -> None:
    """Users may run Regraft from a directory with a ``regraft`` folder, such as one of settings."""
    with Supervisor() as supervisor:
        supervisor.start(child)
        assert supervisor.wait_end(child.name, 0) == 0


def test_without_the_safe_path_they_would(child: Service) -> None:
    """Only the safe path separates them: by default Python looks into the working directory first."""
    environment = {**child.environment, "PYTHONSAFEPATH": ""}
    with Supervisor() as supervisor, pytest.raises(ServiceFailedError) as error:
        supervisor.start(replace(child, environment=environment))
    assert "somebody else has" in error.value.log_tail


def test_brokers_start_while_spark_compiles_its_first_micro_batch(tmp_path: Path) -> None:
    """Each takes seconds, and neither needs the other until there is traffic."""
    settings = load_settings({"run": {"directory": tmp_path / "run"}})
    is_up, has_brokers, started = threading.Event(), threading.Event(), list[str]()

    def start(*services: Service, on_wait: Callable[[str], None] = lambda _: None) -> None:
        started.extend(service.name for service in services)
        if started[-1] == EMULATOR:
            has_brokers.set()
            return
        on_wait(STREAMING)
        (settings.streaming.query_directory / "offsets").mkdir(parents=True)  # Its query begins.
        assert has_brokers.wait(10)
        is_up.set()

    waited_for = list[str]()
    start_fresh(start, [STREAMING, ALERTS], settings, waited_for.append)
    assert is_up.is_set()
    assert started == [STREAMING, ALERTS, EMULATOR]
    assert waited_for == [STREAMING]


def test_no_brokers_start_if_spark_cannot(tmp_path: Path) -> None:
    """The failure is the stage's."""
    started = list[str]()

    def start(*services: Service, **_: object) -> None:
        started.extend(service.name for service in services)
        raise ServiceFailedError("no memory", "")

    with pytest.raises(ServiceFailedError, match="no memory"):
        start_fresh(start, [STREAMING], load_settings({"run": {"directory": tmp_path / "run"}}), lambda _: None)
    assert started == [STREAMING]
