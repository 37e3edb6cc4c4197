"""The tables of Celery applications.

[celery.shop]
app = "shop.celery:app"

[celery.shop.tasks.refund]
task = "shop.tasks.refund"
queue = "payments"
risky = true
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, model_validator

from palaver.errors import ConfigurationError
from palaver.schemas.fields import Strict, ToolName
from palaver.secrets.redaction import passwords_of, register_secrets
from workers.sources.tables import MaxResult, Timeout, ToolTable, Variable, required

Address = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9+]*://\S*$", max_length=2000)]


class TaskTable(ToolTable):
    """A task that is a tool."""

    task: Annotated[str, StringConstraints(pattern=r"^\S{1,255}$")] | None = None
    """Its name in its application. None: that of the tool."""
    queue: Annotated[str, StringConstraints(pattern=r"^\S{1,255}$")] | None = None
    """The queue that it is sent to. None: the one that its application chooses."""
    terminate: bool = False
    """True: if the run is cancelled, or time is up, its process is ended; False: it is not begun."""


class CelerySection(Strict):
    """A table ``[celery.NAME]``. The application is imported, or it is known by the address of its broker."""

    app: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", max_length=200)] | None = None
    """``module:attribute``."""
    broker: Address | None = None
    broker_env: Variable | None = None
    """The name of an environment variable that has the address of the broker."""
    backend: Address | None = None
    backend_env: Variable | None = None
    """The same of the result backend, for workers that do not report."""
    reports: Address | None = None
    reports_env: Variable | None = None
    """The same of the Redis to which workers report. None: the broker is one."""
    timeout: Timeout = 30.0
    max_result: MaxResult | None = None
    tasks: Annotated[Mapping[ToolName, TaskTable], Field(min_length=1)]

    @model_validator(mode="after")
    def _well_made(self) -> Self:
        if sum(place is not None for place in (self.app, self.broker, self.broker_env)) != 1:
            raise ValueError("has one of app, broker, and broker_env, the name of an environment variable")
        for name in ("broker", "backend", "reports"):
            if (address := getattr(self, name)) is not None and "@" in urlsplit(address).netloc:
                raise ValueError(f"{name}: has a login: put the address into a variable, and its name into {name}_env")
            _refuse_cluster(name, address)
            if address is not None and getattr(self, f"{name}_env") is not None:
                raise ValueError(f"has either {name} or {name}_env")
        if self.app is None:
            for name, task in self.tasks.items():
                if not task.parameters:
                    raise ValueError(f"tasks.{name}: needs parameters: without app there is no signature")
        return self

    def address(self, name: str) -> str | None:
        """The address that is called ``broker``, ``backend`` or ``reports``; None if there is none.

        Raises:
            ConfigurationError: its variable is not set, or names a cluster.
        """
        variable: str | None = getattr(self, f"{name}_env")
        if variable is None:
            address: str | None = getattr(self, name)
            return address
        value = required(variable)
        register_secrets([value, *passwords_of(value)])
        try:
            _refuse_cluster(variable, value)
        except ValueError as error:
            raise ConfigurationError(str(error)) from None
        return value


def _refuse_cluster(name: str, address: str | None) -> None:
    if "cluster" in (address or "").partition("://")[0]:
        raise ValueError(
            f"{name}: Celery cannot use a Redis in cluster mode: name one server with `cluster-enabled no`, as "
            "redis://HOST:PORT/0, Sentinels, as Celery names them (sentinel://), or a RabbitMQ, as amqp://HOST//"
        )
