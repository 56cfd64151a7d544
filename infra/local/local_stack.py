"""Compose Java, jars, Kafka, Valkey and further processes into one local stack under one supervisor.

In: a run directory; ``REGRAFT_KAFKA_BOOTSTRAP`` and ``REGRAFT_REDIS_URL`` if users bring their own servers.
Out: addresses and the supervisor. The caller adds the processes of the stages by ``add``.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from regraft.infra.kafka.kafka_access import KafkaAccess, KafkaSecurity
from regraft.infra.kafka.kafka_clients import is_kafka_ready
from regraft.infra.live.redis_access import RedisSecurity
from regraft.infra.local.find_java import find_java
from regraft.infra.local.kafka_server import start_kafka_service
from regraft.infra.local.secure_kafka import SecuredKafka, secure_kafka
from regraft.infra.local.secure_valkey import start_secured_valkey
from regraft.infra.local.service import Service, ServiceEvent
from regraft.infra.local.supervise import Supervisor
from regraft.infra.local.valkey_server import URL_VARIABLES, external_redis_url, is_redis_ready, start_valkey_service
from regraft.infra.process.check_disk import FREE_MB_MIN, check_disk
from regraft.infra.process.end_on_sigterm import end_on_sigterm
from regraft.infra.process.hold_lock import LockHeldError, hold_lock
from regraft.infra.process.stack_error import StackError

BOOTSTRAP_VARIABLE = "REGRAFT_KAFKA_BOOTSTRAP"
REDIS_VARIABLE = "REGRAFT_REDIS_URL"
EXTERNAL_TIMEOUT_S = 10.0


class RunDirInUseError(StackError):
    """Reports that another run uses the run directory."""


class LocalStack:
    """Kafka and Valkey for one run; use as a context manager.

    Stacks in different directories are independent: each has its own ports, data and logs. If entered in the main
    thread, it turns SIGTERM into an orderly exit (SystemExit 143).
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        kafka_port: int | None = None,
        redis_port: int | None = None,
        kafka_properties: Mapping[str, str] | None = None,
        free_mb_min: int = FREE_MB_MIN,
        on_event: Callable[[ServiceEvent], None] | None = None,
        environ: Mapping[str, str] = os.environ,
        secure: bool = False,
        kafka_security: KafkaSecurity | None = None,
        redis_security: RedisSecurity | None = None,
        patience: float = 1.0,
    ) -> None:
        """Prepare a stack; ``secure`` runs its servers with TLS, logins and access lists.

        ``patience`` is that of the supervisor. ``kafka_security`` and ``redis_security`` are those of the user's own
        servers. Once the stack runs, the attributes of these names are those of the servers in use.
        """
        self.run_dir = run_dir.absolute()
        self.bootstrap = ""
        self.redis_url = ""
        self.kafka_security = KafkaSecurity()
        self.redis_security = RedisSecurity()
        self._kafka_port = kafka_port
        self._redis_port = redis_port
        self._kafka_properties = kafka_properties
        self._free_mb_min = free_mb_min
        self._on_event = on_event
        self._environ = environ
        self._secure = secure
        self._patience = patience
        self._external_security = kafka_security or KafkaSecurity(), redis_security or RedisSecurity()
        self._cleanup = ExitStack()
        self._supervisor: Supervisor | None = None

    @property
    def supervisor(self) -> Supervisor:
        """The supervisor of all services; the stack must have been entered."""
        if self._supervisor is None:
            raise RuntimeError("The local stack is not running: enter it with `with LocalStack(...)` first.")
        return self._supervisor

    def __enter__(self) -> Self:
        self._check_servers_are_ours()
        with ExitStack() as cleanup:
            check_disk(self.run_dir, self._free_mb_min)
            cleanup.enter_context(_run_dir_lock(self.run_dir))
            cleanup.enter_context(end_on_sigterm())
            self._supervisor = cleanup.enter_context(Supervisor(self._on_event, patience=self._patience))
            secured = secure_kafka(self.run_dir / "security") if self._secure else None
            self.bootstrap = self._start_kafka(self._supervisor, secured)
            self.redis_url = self._start_redis(self._supervisor, secured)
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(self, *details: Any) -> None:
        self._cleanup.close()

    def _check_servers_are_ours(self) -> None:
        """Raise StackError if a secured stack is wanted with the user's own servers."""
        for variable in (BOOTSTRAP_VARIABLE, *URL_VARIABLES):
            if self._secure and self._environ.get(variable):
                raise StackError(
                    f"--secure applies only to servers that Regraft starts, and {variable} names your own: unset it, "
                    "or leave --secure out and configure kafka.security and redis.security for your own."
                )

    def environment(self) -> dict[str, str]:
        """Return the environment by which a child process finds this stack and its Java."""
        return {
            BOOTSTRAP_VARIABLE: self.bootstrap,
            REDIS_VARIABLE: self.redis_url,
            "JAVA_HOME": str(find_java(self._environ).home),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONUNBUFFERED": "1",
        }

    def add(self, *services: Service, on_wait: Callable[[str], None] = lambda name: None) -> None:
        """Start other services with the stack's addresses in their environment, and wait until they are ready."""
        stack = self.environment()
        added = [replace(service, environment={**stack, **service.environment}) for service in services]
        self.supervisor.start(*added, on_wait=on_wait)

    def _start_kafka(self, supervisor: Supervisor, secured: SecuredKafka | None) -> str:
        external = self._environ.get(BOOTSTRAP_VARIABLE)
        if not external:
            self.kafka_security = secured.login() if secured else KafkaSecurity()
            address = start_kafka_service(
                supervisor,
                self.run_dir,
                port=self._kafka_port,
                more_properties=self._kafka_properties,
                secured=secured,
            )
            return address.bootstrap
        self.kafka_security = self._external_security[0]
        if not is_kafka_ready(KafkaAccess(external, security=self.kafka_security), EXTERNAL_TIMEOUT_S):
            raise StackError(
                f"Kafka at {external} ({BOOTSTRAP_VARIABLE}) did not answer within {EXTERNAL_TIMEOUT_S:g} s: "
                "`regraft doctor` says why; correct the settings, or unset the variable to start a local broker."
            )
        return external

    def _start_redis(self, supervisor: Supervisor, secured: SecuredKafka | None) -> str:
        external = external_redis_url(self._environ)
        if not external and secured:
            access = start_secured_valkey(supervisor, self.run_dir, secured, port=self._redis_port)
            self.redis_security = access.security
            return access.url
        if not external:
            return start_valkey_service(supervisor, self.run_dir, port=self._redis_port).url
        self.redis_security = self._external_security[1]
        if not is_redis_ready(external, EXTERNAL_TIMEOUT_S, self.redis_security):
            raise StackError(
                f"The Redis or Valkey server named in {REDIS_VARIABLE} or REDIS_URL did not answer within "
                f"{EXTERNAL_TIMEOUT_S:g} s: correct the URL, or unset the variable to start a local server."
            )
        return external


@contextmanager
def _run_dir_lock(run_dir: Path) -> Iterator[None]:
    with ExitStack() as held:
        try:
            held.enter_context(hold_lock(run_dir / "run.lock"))
        except LockHeldError as error:
            raise RunDirInUseError(
                f"Run directory {run_dir} is in use by process {error.holder_pid or 'unknown'}: "
                "wait for it, stop it, or choose another directory."
            ) from error
        yield
