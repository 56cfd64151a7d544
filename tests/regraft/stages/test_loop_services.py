"""Child processes of a run: what they import, wherever they are started."""

from dataclasses import replace
from pathlib import Path

import pytest

from regraft.infra.local.service import Service
from regraft.infra.local.supervise import ServiceFailedError, Supervisor
from regraft.settings.run_settings import load_settings
from regraft.stages.loop_services import ALERTS, loop_service


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
