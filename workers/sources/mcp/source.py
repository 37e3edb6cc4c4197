"""The tools of servers of the Model Context Protocol, as steps call them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from palaver.errors import ToolError, ToolTimeout
from palaver.tools import ToolContext, ToolDeclaration

from ..containment import ToolAnswer, failing, presented, timed_out
from ..guests import ToolsOfFile
from .budget import taken_together
from .failures import ENDED, UNKNOWN, failure_of_call
from .lists import read_list
from .offers import OfferedTool, offers_of, visible
from .param_headers import values_of
from .results import presented_result
from .server import Server
from .wire import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    InvalidAnswer,
    Message,
    NeverSent,
    RpcError,
    SessionGone,
)

_NOBODYS: Final = (None, None)
_ROUNDS: Final = 5
"""Times that a server may ask for the same call again with its own state."""
_PROGRESS_APART: Final = 0.5
"""Seconds between two reports of progress that are looked at."""


class McpTools(ToolsOfFile):
    """The source of all tools of these servers."""

    def __init__(self, servers: Iterable[Server]) -> None:
        """Take what fits together: a name that two servers have is nobody's."""
        self._servers = tuple(servers)
        self._tools: dict[str, tuple[Server, OfferedTool]] = {}
        self.declarations: tuple[ToolDeclaration, ...] = ()
        self.renew()

    def renew(self) -> None:
        """Take what the servers have by now."""
        self._tools = {offer.declaration.name: (server, offer) for server, offer in taken_together(self._servers)}
        self.declarations = tuple(offer.declaration for _, offer in self._tools.values())

    async def call(self, declared: ToolDeclaration, arguments: Mapping[str, Any], context: ToolContext) -> ToolAnswer:
        """As ``ToolSource``: ask the server that has it."""
        server, offer = self._tools.get(declared.name, _NOBODYS)
        if server is None or offer is None or offer.is_gone:
            raise ToolError(f"{declared.name} is no longer there: nothing was called")
        call = _Call(server, offer, declared, arguments, context)
        try:
            async with asyncio.timeout(declared.timeout):
                with failing(declared, asyncio.current_task()):
                    result = await call.result()
            return presented(declared, result)
        except TimeoutError:
            if not call.sent:
                late = NeverSent(f"it did not answer within {declared.timeout:g} s")
                raise failure_of_call(late, server, offer) from None
            raise ToolTimeout(f"{timed_out(declared.name, declared.timeout)}: {UNKNOWN}") from None


class _Call:
    """One call, and what becomes of it: its result, or a failure that says whether the server may have done it."""

    def __init__(
        self,
        server: Server,
        offer: OfferedTool,
        declared: ToolDeclaration,
        arguments: Mapping[str, Any],
        context: ToolContext,
    ) -> None:
        self._server = server
        self._offer = offer
        self._declared = declared
        self._arguments = arguments
        self._context = context
        self._reported = 0.0
        self.sent = False
        """True once the server may have it."""
        self._headers = values_of(offer.headers, arguments)

    async def result(self) -> object:
        """The result for the model.

        Raises:
            RetryableToolError: the call may be made again: the server has not taken it, or it is idempotent.
            ToolError: the server refused it, it failed, or nobody knows.
        """
        try:
            return presented_result(await self._answered(), self._offer.output_schema)
        except ENDED as error:
            if isinstance(error, SessionGone) or (isinstance(error, RpcError) and error.code == INVALID_PARAMS):
                # With a session the server may have forgotten which tools it had; or the tool is gone, or other than
                # it was.
                self._server.last_list.expire()
                self._server.note_change()
            raise failure_of_call(error, self._server, self._offer) from error

    async def _answered(self) -> Message:
        """The result of the server, in as many rounds as it wants with its own state."""
        again: dict[str, Any] = {}
        for _ in range(_ROUNDS):
            answer = await self._server.renewing(partial(self._asked, again))
            match answer.get("resultType", "complete"):
                case "complete":
                    return dict(answer)
                case "input_required":
                    again = self._own_state(answer)
                case "task":
                    raise ToolError(f"{self._server.label} made a task of the call, which is not waited for: {UNKNOWN}")
                case other:
                    raise InvalidAnswer(f"it sent a result of the kind {str(other)[:40]!r}")
        raise InvalidAnswer("it asks for the same call again and again")

    def _own_state(self, answer: Message) -> dict[str, Any]:
        if answer.get("inputRequests"):
            raise ToolError(
                f"{self._server.label} asks a person something, which cannot be answered here: nothing was done"
            )
        if not isinstance(state := answer.get("requestState"), str):
            raise InvalidAnswer("it wants something and does not say what")
        return {"requestState": state}

    async def _asked(self, again: Mapping[str, Any]) -> Message:
        try:
            return await self._sent(again)
        except RpcError as error:
            if error.code != HEADER_MISMATCH:
                raise
        # The server looked at headers alone: the tool has others by now.
        listed = await read_list(self._server.connection)
        found, _ = offers_of(self._server.label, self._server.section, listed.tools)
        headers = next((offer.headers for offer in found if offer.name == self._offer.name), self._offer.headers)
        self._headers = values_of(headers, self._arguments)
        return await self._sent(again)

    async def _sent(self, again: Mapping[str, Any]) -> Message:
        trace = {} if self._context.traceparent is None else {"traceparent": self._context.traceparent}
        return await self._server.connection.ask(
            "tools/call",
            {"name": self._offer.name, "arguments": dict(self._arguments), **again},
            name=self._offer.name,
            param_headers=self._headers,
            meta=trace,
            progress=self._heard,
            sending=self._sending,
        )

    def _sending(self) -> None:
        self.sent = True

    def _heard(self, progress: Message) -> None:
        now = time.monotonic()
        if now - self._reported < _PROGRESS_APART:
            return
        self._reported = now
        done, total, text = progress.get("progress"), progress.get("total"), progress.get("message")
        fraction = done / total if _is_number(done) and _is_number(total) and total > 0 else None  # type: ignore[operator]
        self._context.progress(visible(text[:2_000]) if isinstance(text, str) else "", fraction=fraction)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
