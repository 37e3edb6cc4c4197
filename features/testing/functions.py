"""The tools of a test: functions that run in its process, and what was asked of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import orjson

from palaver.errors import ToolFailure
from palaver.tools import Tool, ToolContext, ToolDeclaration, tool
from workers.sources.containment import ToolAnswer, contained, failing, presented, timed_out

Elsewhere = Callable[[Callable[[], ToolAnswer]], Awaitable[ToolAnswer]]
"""Makes a call that may block, away from the loop."""


class MadeCall(NamedTuple):
    """A call of a tool that began."""

    run_id: str
    tool: str
    arguments: dict[str, Any]


class _Given(dict[str, Any]):
    """Arguments as the function takes them, with the text that they were read from."""

    text: str


class LocalFunctions:
    """The source of these functions. Blocking ones run ``elsewhere``; the others on the loop of the engine."""

    name = "this test"

    def __init__(self, elsewhere: Elsewhere) -> None:
        self.begun: list[MadeCall] = []
        self.raised: list[BaseException] = []
        """The errors of tools, without those that they told the model on purpose."""
        self.declarations: Sequence[ToolDeclaration] = ()
        self._elsewhere = elsewhere
        self._tools: dict[str, Tool] = {}

    def take(self, functions: Sequence[Callable[..., Any]]) -> list[str]:
        """Have these functions, with those that were there, and return their names.

        Raises:
            ConfigurationError: the signature of one cannot be a schema.
        """
        tools = [each if isinstance(each, Tool) else tool(each) for each in functions]
        # One worker takes from all queues.
        tools = [replace(each, queue=None) for each in tools]
        self._tools |= {each.name: each for each in tools}
        self.declarations = tuple(each.declaration for each in self._tools.values())
        return [each.name for each in tools]

    def check(self, declared: ToolDeclaration, text: str) -> dict[str, Any]:
        """As ``ToolSource``."""
        given = _Given(self._tools[declared.name].parse(text))
        given.text = text
        return given

    async def call(self, declared: ToolDeclaration, arguments: Mapping[str, Any], context: ToolContext) -> ToolAnswer:
        """As ``ToolSource``. A blocking function is not interrupted: that it took too long is told behind it."""
        function = self._tools[declared.name]
        written = orjson.loads(arguments.text.strip() or "{}") if isinstance(arguments, _Given) else dict(arguments)
        self.begun.append(MadeCall(context.run_id, declared.name, written))
        bound = function.bind(arguments, context)
        if function.is_async:
            return await contained(declared, partial(self._awaited, bound))
        if function.inline:
            return await contained(declared, partial(self._made, bound))
        began = time.monotonic()
        answer = await self._elsewhere(partial(self._whole, declared, bound))
        if time.monotonic() - began > declared.timeout:
            raise timed_out(declared.name, declared.timeout)
        return answer

    def _whole(self, declared: ToolDeclaration, bound: Callable[[], Any]) -> ToolAnswer:
        # What the function returns runs code of its own when it is written out: so here, too.
        with failing(declared):
            return presented(declared, self._made(bound))

    def _made(self, bound: Callable[[], Any]) -> Any:
        try:
            return bound()
        except BaseException as error:
            self._note(error)
            raise

    async def _awaited(self, bound: Callable[[], Any]) -> Any:
        try:
            return await bound()
        except BaseException as error:
            self._note(error)
            raise

    def _note(self, error: BaseException) -> None:
        if not isinstance(error, ToolFailure | asyncio.CancelledError):
            self.raised.append(error)


def is_of_the_test(error: BaseException) -> bool:
    """Tell whether what a tool raised is for the test in any case: an assertion of it, pytest's own, Ctrl-C."""
    return isinstance(error, AssertionError) or not isinstance(error, Exception | SystemExit | GeneratorExit)
