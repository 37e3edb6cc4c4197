"""The source of tools that are tasks of Celery applications."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from palaver.config.settings import Settings
from palaver.errors import ConfigurationError, ToolTimeout
from palaver.errors.sentences import IN_DOUBT
from palaver.tools import ToolContext, ToolDeclaration
from palaver.tools.schemas import fitting

from ..containment import ToolAnswer, contained
from ..guests import VARIABLE, SourceFinding
from ..port import RunBlocking, ToolSource
from .applications import Application, Order
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


class TaskTools:
    """The tools of all applications."""

    name = VARIABLE

    def __init__(self, tasks: Sequence[_Task]) -> None:
        self.declarations: Sequence[ToolDeclaration] = tuple(task.declared for task in tasks)
        self._tasks = {task.declared.name: task for task in tasks}

    def check(self, declared: ToolDeclaration, text: str) -> dict[str, Any]:
        """As ``ToolSource``."""
        return fitting(declared, text)

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


@asynccontextmanager
async def _opened(name: str, section: CelerySection) -> AsyncIterator[tuple[TaskCalls, Application]]:
    calls = TaskCalls(name, partial(Application, name, section))
    application = await calls.open()
    try:
        yield calls, application
    finally:
        await calls.close()


class _Celery:
    section = CelerySection

    @asynccontextmanager
    async def open(
        self, settings: Settings, sections: Mapping[str, CelerySection], run_blocking: RunBlocking | None
    ) -> AsyncIterator[ToolSource]:
        async with AsyncExitStack() as opened:
            tasks = []
            for name, section in sections.items():
                calls, application = await opened.enter_async_context(_opened(name, section))
                for tool, table in section.tasks.items():
                    tasks.append(_Task(calls, table, application.declaration(tool, table)))
            yield TaskTools(tasks)

    async def check(self, settings: Settings, sections: Mapping[str, CelerySection]) -> AsyncIterator[SourceFinding]:
        for name, section in sections.items():
            yield await _finding(name, section)


async def _finding(name: str, section: CelerySection) -> SourceFinding:
    found = partial(SourceFinding, f"celery.{name}", tools=tuple(section.tasks))
    try:
        async with _opened(name, section) as (calls, application):
            for tool, table in section.tasks.items():
                application.declaration(tool, table)
            workers, tasks = await calls.there(application.found_workers)
    except ConfigurationError as error:
        return found(ok=False, found=f"{error}.", advice=_SEE_TABLE)
    except Exception as error:  # of the client of a broker, of which there are several
        return found(ok=False, found=f"Its broker does not answer ({type(error).__name__}).", advice=_SEE_BROKER)
    missing = sorted({table.task or tool for tool, table in section.tasks.items()} - tasks)
    if missing:
        sentence = f"{workers} workers answer, and none has {', '.join(missing)}."
        return found(ok=False, found=sentence, advice=_SEE_WORKERS)
    return found(ok=True, found=f"{workers} workers answer, and have these tasks.")


KIND = _Celery()
"""As ``guests.KINDS`` names it."""
