"""A Celery application of others, as far as a step needs it: it sends tasks, revokes them, and hears of them.

What asks a broker or a backend blocks, and belongs to one thread: a connection of kombu's is for one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Final

from celery.backends.base import DisabledBackend
from kombu.serialization import registry

from palaver.celery.reports import BRIEFLY, OF_US, Reports, error_facts, reports_over, result_facts
from palaver.errors import ConfigurationError
from palaver.late import dataclass
from palaver.secrets.redaction import passwords_of, register_secrets
from palaver.tools import ToolDeclaration
from workers.own_celery import OwnCelery
from workers.sources.guests import VARIABLE

from .project import Asked, Unread, read, with_entities
from .tables import CelerySection, TaskTable

log = logging.getLogger("palaver.workers.sources.celery")

_PING: Final = 1.0
_WAYS: Final = (
    "install it here, with what it imports and the variables of its settings, or name its broker with broker_env in "
    "the place of app, and give each task parameters"
)
_STATES: Final = {"SUCCESS": "success", "FAILURE": "failure", "REVOKED": "revoked", "STARTED": "started"}


@dataclass(frozen=True, slots=True)
class Order:
    """A call of a tool, as the task that it becomes."""

    task_id: str
    tool: str
    table: TaskTable
    task: str
    arguments: Mapping[str, Any]
    seconds: float
    """The time after which it need not begin."""

    @classmethod
    def of(cls, key: str, tool: str, table: TaskTable, arguments: Mapping[str, Any], seconds: float) -> Order:
        """The order of the call with this idempotency key."""
        return cls(OF_US + key, tool, table, table.task or tool, arguments, seconds)


class NotSent(Exception):
    """Nothing was published."""


class NotImported(ConfigurationError):
    """The application cannot be imported here."""


_AS_TOLD: Final = SimpleNamespace(route=lambda options, *_: options)
"""A router for tasks whose route their project has told."""


class Application:
    """The application of a table: one of our own, which sends to the same broker, by the same settings and routes, as
    that of the project, and has none of its code."""

    def __init__(self, name: str, section: CelerySection) -> None:
        """Raises:
        ConfigurationError: its project cannot be imported, or an address is missing.
        """
        self._place = f"{VARIABLE}: celery.{name}"
        self._section = section
        try:
            self._told = _told(section) if section.app else {}
            self._app = _made(name, section, self._told.get("settings", {}))
            self._backend_there = not isinstance(self._app.backend, DisabledBackend)
            self._reports_at = section.address("reports")
        except ConfigurationError as error:
            raise type(error)(f"{self._place}: {error}") from None
        self._connection: Any = None
        self._reports: Reports | None = None

    def declaration(self, name: str, table: TaskTable) -> ToolDeclaration:
        """A task as a tool. It is idempotent, as a call that is made again finds its task.

        Raises:
            ConfigurationError: the application has no such task, or one whose signature is no schema.
        """
        schema, description = table.schema_with(), table.description
        if self._told:
            told = self._told["tasks"][name]
            error = told.get("error") or _unwritable(told["route"].get("serializer") or self._app.conf.task_serializer)
            if error:
                raise ConfigurationError(f"{self._place}.tasks.{name}: {error}")
            schema, description = told["parameters"] or schema, description or told["description"]
        declared = table.declared(
            name, schema, idempotent=True, timeout=self._section.timeout, max_result=self._section.max_result
        )
        return declared.model_copy(update={"description": description, "idempotent": True})

    def _route(self, order: Order) -> Mapping[str, Any]:
        if not self._told:
            return {"queue": order.table.queue}
        return {**with_entities(self._told["tasks"][order.tool]["route"]), "router": _AS_TOLD}

    def send(self, order: Order) -> None:
        """Publish a task, once. If that may have been done before, it is done again only if nothing was heard of it and
        it is idempotent: its worker will tell, or it will never be known.

        Raises:
            NotSent: nothing was published: the broker cannot be reached.
        """
        try:
            fresh = self._opened().mark(order.task_id)
        except Exception as error:  # of the client of a broker, of which there are several
            self.close()
            raise NotSent(type(error).__name__) from error
        if not fresh and (not order.table.idempotent or self.look(order.task_id)):
            return
        try:
            self._app.send_task(
                order.task,
                kwargs=dict(order.arguments),
                task_id=order.task_id,
                expires=order.seconds,
                connection=self._connection,
                retry=False,
                **self._route(order),
            )
            self._opened().add(order.task_id, "published")
        except Exception as error:  # as above
            log.warning("task %s: it is unknown whether it was published: %s", order.task_id, type(error).__name__)
            self.close()

    def _seen(self, task_id: str) -> list[Mapping[str, Any]]:
        """What is known of a task: by its reports, and by the result backend."""
        return [*self._opened().read(task_id), *self._result(task_id)]

    def look(self, task_id: str) -> list[Mapping[str, Any]]:
        """Return the reports on a task, in order; none if the broker does not answer now."""
        try:
            return self._seen(task_id)
        except Exception as error:  # as above
            log.warning("task %s: its reports cannot be read now: %s", task_id, type(error).__name__)
            self.close()
            return []

    def _result(self, task_id: str) -> list[Mapping[str, Any]]:
        if not self._backend_there:
            return []
        meta = self._app.backend.get_task_meta(task_id)
        state = _STATES.get(meta["status"])
        match state:
            case "success":
                return [{"state": state, **result_facts(meta["result"])}]
            case "failure":
                return [{"state": state, **error_facts(meta["result"])}]
            case None:
                return []
        return [{"state": state}]

    def revoke(self, order: Order) -> None:
        """Tell the workers not to begin a task, or to end it."""
        try:
            self._app.control.revoke(order.task_id, terminate=order.table.terminate, connection=self._connection)
        except Exception as error:  # as above
            log.warning("task %s was not revoked: %s", order.task_id, type(error).__name__)
            self.close()

    def found_workers(self) -> tuple[int, frozenset[str]]:
        """The number of workers that answer, and the tasks that they have."""
        self._opened()
        found = self._app.control.inspect(timeout=_PING, connection=self._connection).registered() or {}
        return len(found), frozenset(task.partition(" ")[0] for tasks in found.values() for task in tasks)

    def _opened(self) -> Reports:
        if self._connection is None:
            options = {**self._app.conf.broker_transport_options, **BRIEFLY}
            self._connection = self._app.connection_for_write(transport_options=options)
        if self._reports is None:
            other = self._app.connection_for_write(self._reports_at, transport_options=BRIEFLY)
            reports = reports_over(other if self._reports_at else self._connection)
            if reports is None:
                raise ConfigurationError(f"{self._place}: the broker is no Redis: name one in reports")
            self._reports = reports
        return self._reports

    def close(self) -> None:
        """Close its connections; they are opened again when they are needed."""
        connection, self._connection, self._reports = self._connection, None, None
        if connection is not None:
            try:
                connection.release()
            except Exception:  # as above
                log.debug("a connection that was lost could not be closed")


def _told(section: CelerySection) -> Mapping[str, Any]:
    """What the application of a project tells of itself.

    Raises:
        NotImported: nothing.
    """
    asked = (
        Asked(name, table.task or name, table.queue, parameters=not table.parameters)
        for name, table in section.tasks.items()
    )
    try:
        return read(section.app or "", asked)
    except Unread as error:
        raise NotImported(f"{error}; {_WAYS}") from None


def _made(name: str, section: CelerySection, settings: Mapping[str, Any]) -> OwnCelery:
    for value in settings.values():
        for address in value if isinstance(value, list) else [value]:
            register_secrets(passwords_of(address) if isinstance(address, str) else ())
    named = {"broker_url": section.address("broker"), "result_backend": section.address("backend")}
    given = {name: address for name, address in named.items() if address is not None}
    return OwnCelery(f"palaver.{name}", {**settings, **given}, set_as_current=False)


def _unwritable(serializer: str) -> str:
    if serializer in registry.name_to_type:
        return ""
    return f"it is sent as {serializer!r}, which only the project can write: let it take JSON, by task_serializer"
