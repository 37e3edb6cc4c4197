"""The port that every tool source implements: what tools it has, and how one of them is called. A second one is that of
servers that an agent names itself: their tools are one conversation's, and in no worker's set (ADR 0111)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from palaver.config.settings import Settings
from palaver.steps.leases import Lease
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


class KeptLists(Protocol):
    """The lists of tools that conversations keep, each by a digest of which server it is of."""

    async def of(self, conversation_id: str, servers: Sequence[str]) -> Mapping[str, bytes]:
        """The lists of these servers that a conversation has."""

    async def keep(self, lease: Lease, server: str, text: bytes) -> bytes:
        """Keep one; return the one that was kept first."""


class OwnTools(Protocol):
    """The tools of the servers of one agent, for one attempt."""

    @property
    def declarations(self) -> Mapping[str, ToolDeclaration]:
        """By the names that the model has for them. In the place of tools that are not known yet there is one that asks
        for them."""

    async def call(self, declared: ToolDeclaration, arguments: Mapping[str, Any], context: ToolContext) -> ToolAnswer:
        """As ``ToolSource``."""


class OwnServers(Protocol):
    """The servers of all conversations that a process works for."""

    async def tools_of(self, lease: Lease, context: ToolContext) -> OwnTools:
        """The tools for the lease's agent. A server without a list is asked for it, within its time; ``context`` says
        as whom. One that does not answer holds up no worker.

        Raises:
            StaleLease: a list cannot be kept: the lease is not the newest any more.
            UnknownConversation: the conversation is gone.
        """

    async def close(self) -> None:
        """Close all connections."""
