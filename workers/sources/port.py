"""The port that every tool source implements: what tools it has, and how one of them is called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from palaver.config.settings import Settings
from palaver.tools import ToolContext, ToolDeclaration

from .containment import ToolAnswer


class ToolSource(Protocol):
    """A source of tools. Each worker process opens one of its own, and has it for as long as it lives."""

    name: str
    """The name of the source in a sentence about its tools."""

    @property
    def declarations(self) -> Sequence[ToolDeclaration]:
        """Its tools, which workers tell to the API. If they change while the process lives, this is another object:
        workers look with each heartbeat. One that is gone stays for a while, and its calls fail in words: agents
        name it."""

    def check(self, declared: ToolDeclaration, text: str) -> dict[str, Any]:
        """The arguments in ``text``, the JSON that a model wrote, if they fit the tool. ``fitting`` of
        ``palaver.tools.schemas`` goes by the declaration alone.

        Raises:
            InvalidToolCall: they do not; says to the model what does not fit.
        """

    async def call(self, declared: ToolDeclaration, arguments: Mapping[str, Any], context: ToolContext) -> ToolAnswer:
        """Call the tool with ``arguments`` that ``check`` let pass; return the result for the model. ``context`` is for
        a tool that wants to know of the call.

        It takes no longer than the tool declares, and neither the answer nor the message of a failure is longer than
        the limits: ``contained`` sees to all of that. It ends soon when it is cancelled.

        Raises:
            CallLeft: the call goes on later, with what its verdict keeps: ``context.left`` has that then.
            ToolTimeout: the tool took longer.
            RetryableToolError: the call is to be tried again.
            ToolFailure: any other failure; it goes to the model.
        """


RunBlocking = Callable[[ToolDeclaration, Callable[[], object]], Awaitable[ToolAnswer]]
"""Makes a call that may block, of the tool that is declared so, and contains it."""
OpenSource = Callable[[Settings, RunBlocking | None], AbstractAsyncContextManager[ToolSource]]
"""Opens a source by its settings, in each process that runs tools, before the process takes a step. Without
``RunBlocking`` it leaves tools out that may block.

It is called in the main thread, where no loop runs: that is the place to import code of users. What it returns is
entered on the loop: that is the place to connect. Either raises ``ConfigurationError`` when the settings do not fit."""
