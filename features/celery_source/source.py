"""The source of tools that are tasks of Celery applications."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Final

from palaver.config.settings import Settings
from palaver.errors import ConfigurationError, ToolTimeout
from palaver.errors.sentences import IN_DOUBT
from palaver.late import dataclass
from palaver.tools import ToolContext, ToolDeclaration
from workers.sources.containment import ToolAnswer, contained
from workers.sources.guests import SourceFinding, ToolsOfFile
from workers.sources.port import RunBlocking, ToolSource

from .applications import Application, NotImported, Order
from .calls import TaskCalls
from .tables import CelerySection, TaskTable

_SEE_WORKERS: Final = "See that its workers run, and have these tasks."
_SEE_BROKER: Final = "See that its broker can be reached from here."
_SEE_TABLE: Final = "Look at the table."


@dataclass(frozen=True, slots=True)
class _Task:
    calls: TaskCalls
    table: TaskTable
    declared: ToolDeclaration


class TaskTools(ToolsOfFile):
    """The tools of all applications."""

    def __init__(self, tasks: Sequence[_Task]) -> None:
        self.declarations: Sequence[ToolDeclaration] = tuple(task.declared for task in tasks)
        self._tasks = {task.declared.name: task for task in tasks}

    async def call(self, declared: ToolDeclaration, arguments: Mapping[str, Any], context: ToolContext) -> ToolAnswer:
        """As ``ToolSource``."""
        task = self._tasks[declared.name]
        key, seconds = context.idempotency_key, min(declared.timeout, context.time_left)
        order = Order.of(key, declared.name, task.table, arguments, seconds)
        try:
            return await contained(declared, partial(task.calls.outcome, order, context))
        except ToolTimeout as error:
            await task.calls.revoke(order)
            raise ToolTimeout(f"{error}, and was revoked.{IN_DOUBT}") from None


class _Celery:
    section = CelerySection

    def read_ahead(self, sections: Mapping[str, CelerySection]) -> None:
        """As ``ReadAhead``."""
        for name, section in sections.items():
            Application(name, section)

    def open(
        self, settings: Settings, sections: Mapping[str, CelerySection], run_blocking: RunBlocking | None
    ) -> AbstractAsyncContextManager[ToolSource]:
        """As ``SourceKind``. Projects are imported by the call, by processes of their own."""
        applications = {name: Application(name, section) for name, section in sections.items()}
        declared = {
            (name, tool): applications[name].declaration(tool, table)
            for name, section in sections.items()
            for tool, table in section.tasks.items()
        }
        return self._serve(applications, sections, declared)

    @asynccontextmanager
    async def _serve(
        self,
        applications: Mapping[str, Application],
        sections: Mapping[str, CelerySection],
        declared: Mapping[tuple[str, str], ToolDeclaration],
    ) -> AsyncIterator[ToolSource]:
        calls = {name: TaskCalls(name, application) for name, application in applications.items()}
        try:
            yield TaskTools(
                [_Task(calls[name], sections[name].tasks[tool], tool_of) for (name, tool), tool_of in declared.items()]
            )
        finally:
            for each in calls.values():
                each.close()

    async def check(self, settings: Settings, sections: Mapping[str, CelerySection]) -> AsyncIterator[SourceFinding]:
        for name, section in sections.items():
            yield _finding(name, section)


def _finding(name: str, section: CelerySection) -> SourceFinding:
    found = partial(SourceFinding, f"celery.{name}", tools=tuple(section.tasks))
    try:
        application = Application(name, section)
        for tool, table in section.tasks.items():
            application.declaration(tool, table)
    except ConfigurationError as error:
        return found(ok=False, found=f"{error}.", advice="" if isinstance(error, NotImported) else _SEE_TABLE)
    try:
        workers, tasks = application.found_workers()
    except Exception as error:  # of the client of a broker, of which there are several
        return found(ok=False, found=f"Its broker does not answer ({type(error).__name__}).", advice=_SEE_BROKER)
    finally:
        application.close()
    missing = sorted({table.task or tool for tool, table in section.tasks.items()} - tasks)
    if missing:
        sentence = f"{workers} workers answer, and none has {', '.join(missing)}."
        return found(ok=False, found=sentence, advice=_SEE_WORKERS)
    return found(ok=True, found=f"{workers} workers answer, and have these tasks.")


KIND = _Celery()
"""As ``FEATURE`` names it."""
