"""What a step's function gets: its lease, the conversation as the model sees it, and a way to show progress."""

from __future__ import annotations

from typing import Any

from palaver.errors import Source, UnknownTool
from palaver.leases import Lease
from palaver.models import Message, ToolCall, Usage
from palaver.tools import Tool
from palaver.verdicts import GiveUp, RetryAfter, Verdict
from workers.completion import Completion
from workers.conversations import Conversation
from workers.runtime import Runtime


class Work:
    """One attempt of a step."""

    def __init__(self, lease: Lease, runtime: Runtime, conversation: Conversation) -> None:
        self.lease = lease
        self.runtime = runtime
        self.source: Source = "model" if lease.call is None else "tool"
        self._conversation = conversation
        self._completion: Completion | None = None
        self._text: list[str] = []
        self._shown = runtime.feeder.shown(lease)

    def messages(self) -> list[bytes]:
        """The conversation up to here, each message as the provider wants it."""
        return self._conversation.messages()

    def tool(self, call: ToolCall) -> tuple[Tool, dict[str, Any]]:
        """The tool that ``call`` asks for, and its arguments.

        Raises:
            UnknownTool: the agent has no such tool.
            InvalidToolCall: the arguments do not fit it.
        """
        if call.name not in self.lease.agent.tools:
            offered = ", ".join(self.lease.agent.tools) or "none"
            raise UnknownTool(f"there is no tool {call.name!r}; there are: {offered}")
        tool = self.runtime.registry[call.name]
        return tool, tool.parse(call.arguments)

    def follow(self, completion: Completion) -> None:
        """The answer is gathered in ``completion``: its usage counts even if the call is cut off."""
        self._completion = completion

    def show(self, text: str) -> None:
        """Let watchers see more of the answer."""
        self._text.append(text)
        self._shown.add(text)

    @property
    def usage(self) -> Usage:
        """What the provider has reported so far."""
        return Usage() if self._completion is None else self._completion.usage

    @property
    def partial(self) -> Message | None:
        """What the model had said when it was cut off; None if nothing."""
        text = "".join(self._text)
        return Message(role="assistant", content=text, partial=True) if text else None

    async def flush(self) -> None:
        """If watchers saw a beginning, let them see the rest: the deltas of an answer add up to it."""
        await self._shown.flush()

    def withdraws(self, verdict: Verdict) -> bool:
        """Whether watchers saw text that ``verdict`` does not keep, or with a gap."""
        self._shown.close()
        return self._shown.written and (self._shown.lost or isinstance(verdict, RetryAfter | GiveUp))
