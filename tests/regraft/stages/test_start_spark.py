"""What the driver of a cluster needs before it starts, and what its executors get."""

import socket
from pathlib import Path

import pytest

from regraft.infra.process.find_port import LOOPBACK, choose_ports
from regraft.infra.process.stack_error import StackError
from regraft.settings.run_settings import Settings, SettingsError, load_settings
from regraft.stages.start_spark import driver_heap_mb, executor_options, require_master
from tests.overlay.small_overlays import inventory_of, line_of


def test_one_of_several_masters_is_enough() -> None:
    """If all others are unreachable the job starts; other cluster managers and local mode have no master to ask."""
    [away] = choose_ports(1)
    with socket.create_server((LOOPBACK, 0)) as server:
        require_master(f"spark://{LOOPBACK}:{away},{LOOPBACK}:{server.getsockname()[1]}")
    for other in ("local[2]", "k8s://https://none:6443"):
        require_master(other)


@pytest.mark.parametrize("address", ["", "nowhere"])
def test_an_unreachable_master_is_reported_at_once(address: str) -> None:
    """The sentence has its address, the reason and what to do; Spark itself would take a minute."""
    address = address or f"{LOOPBACK}:{choose_ports(1)[0]}"  # Chosen here: all workers must collect the same tests.
    with pytest.raises(StackError, match=rf"No Spark master listens at spark://{address} \({address}: .*local\[2\]"):
        require_master(f"spark://{address}")


def test_executors_get_configured_resources_or_what_a_micro_batch_needs(tmp_path: Path) -> None:
    """Cores only if the cluster should not choose; in local mode the driver gets what executors would."""
    streaming = {"records_per_trigger_max": 120_000, "shards": 4}
    inventory_of(line_of(4), {}).save(tmp_path / "inventory.json")

    def given(**spark: object) -> Settings:
        return load_settings({"run": {"directory": tmp_path}, "streaming": streaming, "spark": spark})

    cluster = {"master": "spark://h:7077", "driver_host": "me"}
    assert executor_options(given(**cluster)) == {"spark.executor.memory": "1224m"}
    assert driver_heap_mb(given(**cluster)) == 1_024
    assert executor_options(given(**cluster, executor_cores=1)) == {
        "spark.executor.memory": "1024m",
        "spark.executor.cores": "1",
    }
    assert executor_options(given(**cluster, executor_memory_mb=2_048)) == {"spark.executor.memory": "2048m"}
    assert executor_options(given()) == {}
    assert driver_heap_mb(given()) == 1_224


@pytest.mark.parametrize(
    ("spark", "error"),
    [
        ({"master": "spark://db1:7077"}, "spark: driver_host is 127.0.0.1, where executors of spark://db1:7077"),
        ({"master": "k8s://https://kubernetes.default.svc"}, "spark: driver_host is 127.0.0.1"),
        ({"master": "db1:7077"}, "spark: master is 'db1:7077': must begin with one of local, spark://"),
        ({"executor_memory_mb": 100}, "spark: executor_memory_mb is 100: Spark starts no executor with less than 512"),
        ({"executor_cores": -1}, "spark: executor_cores is -1: must be at least 1, or 0"),
    ],
)
def test_settings_that_cannot_work_are_reported(spark: dict[str, object], error: str) -> None:
    """Otherwise Spark waits for executors that never start."""
    with pytest.raises(SettingsError) as caught:
        load_settings({"spark": spark})
    assert any(each.startswith(error) for each in caught.value.errors)


@pytest.mark.parametrize("master", ["local[4]", f"spark://{LOOPBACK}:7077,localhost:7078"])
def test_on_one_machine_the_driver_is_reachable(master: str) -> None:
    """Its address need not be configured."""
    assert load_settings({"spark": {"master": master}}).spark.driver_host == LOOPBACK
