"""Build a Spark session with the base configuration of the project: lean, UTC, the jars of Kafka, logs to a file.

In: application name, run directory, sizes. Out: a session, or the same settings as ``spark-submit`` arguments.
Queries do not belong here.
"""

import base64
import os
import pwd
import re
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from regraft.infra.local.fetch_jars import spark_jars
from regraft.infra.local.find_java import JavaRuntime, find_java
from regraft.infra.local.java_options import ClassArchive, archive_of, start_options
from regraft.infra.local.secure_spark import write_properties
from regraft.infra.process.find_port import LOOPBACK
from regraft.infra.process.find_user import find_user
from regraft.infra.process.quote_paths import JAVA_LOCALE, with_log_file

MODULE, CLASS_FILE = "jdk.security.auth", Path("com/sun/security/auth/module/UnixSystem.class")
COMPILED = """
yv66vgAAAD0AJAoAAgADBwAEDAAFAAYBABBqYXZhL2xhbmcvT2JqZWN0AQAGPGluaXQ+AQADKClWCAAIAQAJdXNlci5uYW1lCgAKAAsHAAwMAA0A
DgEAEGphdmEvbGFuZy9TeXN0ZW0BAAtnZXRQcm9wZXJ0eQEAJihMamF2YS9sYW5nL1N0cmluZzspTGphdmEvbGFuZy9TdHJpbmc7CAAQAQALcmVn
cmFmdC51aWQKABIAEwcAFAwAFQAWAQAOamF2YS9sYW5nL0xvbmcBAAdnZXRMb25nAQAlKExqYXZhL2xhbmcvU3RyaW5nO0opTGphdmEvbGFuZy9M
b25nOwoAEgAYDAAZABoBAAlsb25nVmFsdWUBAAMoKUoHABwBACdjb20vc3VuL3NlY3VyaXR5L2F1dGgvbW9kdWxlL1VuaXhTeXN0ZW0BAARDb2Rl
AQALZ2V0VXNlcm5hbWUBABQoKUxqYXZhL2xhbmcvU3RyaW5nOwEABmdldFVpZAEABmdldEdpZAEACWdldEdyb3VwcwEABCgpW0oAIQAbAAIAAAAA
AAUAAQAFAAYAAQAdAAAAEQABAAEAAAAFKrcAAbEAAAAAAAEAHgAfAAEAHQAAABIAAQABAAAABhIHuAAJsAAAAAAAAQAgABoAAQAdAAAAFgADAAEA
AAAKEg8JuAARtgAXrQAAAAAAAQAhABoAAQAdAAAAFgADAAEAAAAKEg8JuAARtgAXrQAAAAAAAQAiACMAAQAdAAAAEAABAAEAAAAEA7wLsAAAAAAA
AA==
"""


def java_options(directory: Path) -> str:
    """Return options that give Java the user's name and home, empty if the system knows the user; writes a class."""
    own_id = os.getuid()
    try:
        pwd.getpwuid(own_id)
    except KeyError:
        place = directory.absolute()
        file = place / CLASS_FILE
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(COMPILED))
        options = [f"--patch-module={MODULE}={place}", f"-Duser.name={find_user()}", f"-Dregraft.uid={own_id}"]
        return shlex.join([*options, f"-Duser.home={place}"])
    return ""


def name_user(directory: Path) -> None:
    """Give these options to Spark when this process starts it."""
    if options := java_options(directory):
        os.environ["SPARK_SUBMIT_OPTS"] = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {options}".lstrip()


DRIVER_MEMORY_MB = 1_024
LOCAL_MASTER = "local[2]"
# Spark tries a task four times on a cluster, but only once in local mode, where a Python worker that is killed (most
# likely for lack of memory) would then end the query.
TASK_FAILURES_MAX = 4
# When Python stops a query, a regular expression on a long error text overflows the default stack.
# Jobs here give Java bytes to carry, and Python the work: its thorough compiler costs more than it brings, and more
# threads to collect garbage take more memory but no less CPU time. A start fills 200 MB with classes, which would be
# collected for every few more without MetaspaceSize.
JAVA_OPTIONS = "-Xss4m -XX:+UseSerialGC -XX:MetaspaceSize=256m -XX:MaxMetaspaceSize=512m -XX:TieredStopAtLevel=1"

LOG_PROPERTIES = """\
status=error
appender.file.type=RollingFile
appender.file.name=file
appender.file.fileName={file}
appender.file.filePattern={pattern}
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d %p %m (%c{1})%n%ex
appender.file.policies.type=Policies
appender.file.policies.size.type=SizeBasedTriggeringPolicy
appender.file.policies.size.size=16MB
appender.file.strategy.type=DefaultRolloverStrategy
appender.file.strategy.max=2
rootLogger.level=warn
rootLogger.appenderRef.file.ref=file
"""


def base_configuration(
    run_dir: Path,
    *,
    driver_memory_mb: int = DRIVER_MEMORY_MB,
    driver_host: str = LOOPBACK,
    shuffle_partitions: int = 2,
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the base settings of every Spark job of the project; ``extra`` overrides them.

    Writes the log settings to ``run_dir/spark`` and fetches the jars if they are not in the cache.
    """
    spark_dir = (run_dir / "spark").absolute()
    (spark_dir / "local").mkdir(parents=True, exist_ok=True)
    log_settings = spark_dir / "log4j2.properties"
    log_settings.write_text(with_log_file(LOG_PROPERTIES, spark_dir / "spark.log"))
    java_options = [f"-Dlog4j2.configurationFile={log_settings.as_uri()}", *start_options(spark_archive(find_java()))]
    return {
        "spark.driver.memory": f"{driver_memory_mb}m",
        "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} {shlex.join(java_options)}",
        "spark.executorEnv.PYTHONSAFEPATH": "1",  # or folders in the working directory could shadow packages
        "spark.driver.extraClassPath": driver_class_path(),  # The archive cannot have classes of jars added later.
        "spark.driver.host": driver_host,
        "spark.driver.bindAddress": LOOPBACK if driver_host == LOOPBACK else "0.0.0.0",
        "spark.jars": ",".join(str(jar) for jar in spark_jars()),
        "spark.local.dir": str(spark_dir / "local"),
        "spark.pyspark.python": sys.executable,  # the default is the python3 on PATH
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(shuffle_partitions),
        "spark.sql.streaming.metricsEnabled": "true",
        "spark.sql.warehouse.dir": str(spark_dir / "warehouse"),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **(extra or {}),
    }


def spark_archive(java: JavaRuntime) -> ClassArchive:
    """Return the archive of the driver's classes, which need not exist."""
    jars = f"{Path(pyspark.__file__).resolve().parent} {pyspark.__version__} {driver_class_path()}"
    return archive_of("spark", java, jars)


def driver_class_path() -> str:
    """Return the jars for Kafka, which Spark's own are without."""
    return os.pathsep.join(str(jar) for jar in spark_jars())


def is_submitted(environ: Mapping[str, str] = os.environ) -> bool:
    """Return True if this process was started by spark-submit, which has then chosen master, memory and jars."""
    return "PYSPARK_GATEWAY_PORT" in environ


def build_spark_session(
    app_name: str,
    *,
    run_dir: Path,
    master: str = LOCAL_MASTER,
    driver_memory_mb: int = DRIVER_MEMORY_MB,
    driver_host: str = LOOPBACK,
    shuffle_partitions: int = 2,
    executor_python: str = sys.executable,
    secret_file: Path | None = None,
    extra: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a running session; under spark-submit, the submitted master, memory and jars are kept.

    ``driver_host`` is where executors on other machines reach this one, ``executor_python`` where their Python is, and
    ``secret_file`` holds the secret of the cluster (:mod:`infra.local.secure_spark`). Sets JAVA_HOME, LC_ALL and
    PYSPARK_PYTHON of this process, PYSPARK_SUBMIT_ARGS if there is a secret, and SPARK_SUBMIT_OPTS for a user without a
    name. Raises SparkSecretError.
    """
    builder = SparkSession.builder.appName(app_name)
    if is_submitted():
        for key, value in (extra or {}).items():
            builder = builder.config(key, value)
        return builder.getOrCreate()
    os.environ.update(JAVA_LOCALE, JAVA_HOME=str(find_java().home))
    os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"] = executor_python, sys.executable
    if driver_host == LOOPBACK:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    name_user(run_dir / "spark" / "user")
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")  # glibc: otherwise many threads hold many half-empty arenas
    settings = base_configuration(
        run_dir,
        driver_memory_mb=driver_memory_mb,
        driver_host=driver_host,
        shuffle_partitions=shuffle_partitions,
        extra=extra,
    )
    if secret_file is not None:  # Options of a session are in its command line, which others can read.
        properties = (run_dir / "spark" / "secret.conf").absolute()
        write_properties(secret_file, properties)
        given = shlex.join(["--properties-file", str(properties), "--load-spark-defaults"])
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{given} pyspark-shell"
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.master(with_task_retries(master)).getOrCreate()


def with_task_retries(master: str) -> str:
    """Return a master's URL; a local one gets the number of attempts of a task unless it has one."""
    return re.sub(r"^local\[(\d+|\*)\]$", rf"local[\1,{TASK_FAILURES_MAX}]", master)


def end_session(spark: SparkSession) -> None:
    """Stop a session; do nothing if its Java has already ended."""
    with suppress(Py4JError, OSError):
        spark.stop()
