"""A request for an answer, in whatever dialect: check it, look up its fault, play it."""

from __future__ import annotations

import asyncio
import time
from itertools import islice

from aiohttp import web

from palaver.testing.model_server import raw
from palaver.testing.model_server.dialects import Dialect
from palaver.testing.model_server.grammar import Fault, Script, UnknownModel, parse
from palaver.testing.model_server.history import Chat, History, InvalidRequest
from palaver.testing.model_server.ledger import Ledger, Record
from palaver.testing.model_server.providers import Refused
from palaver.testing.model_server.refusals import HTML, waits
from palaver.testing.model_server.reply import Reply, compose
from palaver.testing.model_server.sending import SSE, Sending

LAST_USER = 80
"""Characters of the last user text that the ledger keeps."""
ERRORS = ("errorchunk", "overloaded")
"""Faults that are errors in the middle of an answer."""
ONE_WRITE = 100
"""Tokens up to which a stream without a rate is one write: about 20 KB, which a socket takes at once."""


class Completions:
    """The handler. `stopping` is set before the server ends its open connections, not clients that left."""

    def __init__(self, dialect: Dialect, ledger: Ledger, api_key: str | None) -> None:
        self._dialect = dialect
        self._ledger = ledger
        self._api_key = api_key
        self.stopping = False

    def authorised(self, request: web.BaseRequest) -> bool:
        """Whether the request carries the key, if one is asked for."""
        return self._api_key is None or self._dialect.key(request.headers) == self._api_key

    def unauthorised(self) -> tuple[int, bytes]:
        """The answer to a request without it."""
        refused = self._dialect.refused("401")
        assert refused is not None
        return refused

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; whatever happens, its ledger entry is closed."""
        at, at_monotonic = time.time(), time.monotonic()
        judged: Chat | InvalidRequest
        try:
            judged = self._dialect.read(await request.content.read(), request.headers)
        except InvalidRequest as error:
            judged = error
        record = self._enter(request, judged, at, at_monotonic)
        dialect = self._dialect
        sending = Sending(request, record, dialect.id_header, dialect.end)
        outcome = "failed"
        try:
            if not self.authorised(request):
                outcome = "refused:authentication"
                return await sending.whole(*self.unauthorised())
            if isinstance(judged, InvalidRequest):
                raise judged
            return await self._play(judged, parse(judged.model), record, sending)
        except UnknownModel as error:
            outcome = "refused:unknown_model"
            return await sending.whole(404, dialect.error(404, str(error), "model_not_found"))
        except Refused as error:
            outcome = f"refused:{error.why}"
            return await sending.whole(400, error.body)
        except InvalidRequest as error:
            outcome = "refused:invalid_request"
            return await sending.whole(400, dialect.error(400, str(error), None, error.param))
        except (asyncio.CancelledError, ConnectionResetError):
            if record.ended_at is None:
                outcome = self._left(record)
            raise
        finally:
            self._ledger.close(record, outcome)

    def _enter(self, request: web.BaseRequest, judged: Chat | InvalidRequest, at: float, at_monotonic: float) -> Record:
        chat = judged if isinstance(judged, Chat) else None
        history = chat.history if chat else History()
        headers = request.headers
        return self._ledger.open(
            model=chat.model if chat else "",
            digest=chat.digest if chat else "",
            run=headers.get("X-Palaver-Run"),
            idempotency_key=headers.get("Idempotency-Key"),
            request_id=headers.get("X-Request-Id"),
            at=at,
            at_monotonic=at_monotonic,
            messages=history.messages,
            turn=history.turn,
            call_index=history.call_index,
            stream=bool(chat and chat.stream),
            last_user=history.last_user[:LAST_USER],
            tool_results=history.tool_results,
            breakpoints=history.breakpoints,
        )

    def _left(self, record: Record) -> str:
        """The outcome of a request whose connection ended before its answer did."""
        if self.stopping:
            return "stopped"
        record.closed_by_client_at = time.time()
        return f"fault:{record.fault}" if record.fault in ("hang", "stall", "raw") else "disconnected"

    async def _play(self, chat: Chat, script: Script, record: Record, sending: Sending) -> web.StreamResponse:
        """Send what the script says. Raises InvalidRequest when it cannot be played on this request, and Refused."""
        self._dialect.check(script, chat)
        fault = script.fault(chat.history.call_index, record.attempt)
        record.fault = fault.name if fault else None
        if fault and fault.name == "hang":
            await sending.silence()
        if fault and fault.name == "reset":
            self._ledger.close(record, "fault:reset")
            sending.reset()
            await sending.silence()
        reply = compose(script, chat, fault)
        if script.ttft:
            await asyncio.sleep(script.ttft)
        window = script.room if script.window is None else script.window
        if window is not None and chat.prompt_tokens > window:
            response = await sending.whole(400, self._dialect.window_exceeded(window, chat.prompt_tokens))
            self._ledger.close(record, "refused:context_length")
            return response
        if fault is None:
            response = await self._plain(chat, script, reply, sending)
        else:
            response = await self._faulty(fault, chat, script, reply, record, sending)
        self._ledger.close(record, f"fault:{fault.name}" if fault else "answered")
        return response

    async def _faulty(
        self, fault: Fault, chat: Chat, script: Script, reply: Reply, record: Record, sending: Sending
    ) -> web.StreamResponse:
        refused = self._dialect.refused("429" if fault.name in ("429date", "429ms") else fault.name)
        if refused is not None:
            status, body = refused
            return await sending.whole(status, body, headers=waits(fault))
        match fault.name:
            case "html":
                return await sending.whole(200, HTML, content_type="text/html")
            case "raw":
                return await self._raw(raw.given(chat.history.last_user), record, sending)
            case "badjson":
                if chat.stream:
                    return await sending.stream(self._dialect.broken_events(reply), None)
                document = self._dialect.document(reply)
                return await sending.whole(200, document[: len(document) // 2])
            case "empty":
                if chat.stream:
                    return await sending.stream(self._dialect.empty_events(reply), None)
                return await sending.whole(200, self._dialect.empty_document(reply))
            case "stall" | "cut" | "short" | "errorchunk" | "overloaded":
                response = await self._beginning(fault, chat, script, reply, sending)
                if fault.name == "cut":
                    self._ledger.close(record, "fault:cut")
                    sending.drop()
                if fault.name in ("cut", "stall"):
                    await sending.silence()
                await response.write_eof()
                return response
        return await self._plain(chat, script, reply, sending)

    async def _raw(self, answer: raw.Answer | raw.Wire, record: Record, sending: Sending) -> web.StreamResponse:
        """Send what the request brought."""
        if isinstance(answer, raw.Answer):
            return await sending.whole(answer.status, answer.body, headers=answer.headers)
        sending.write(answer.data)
        if answer.then != "hang":
            self._ledger.close(record, "fault:raw")
            sending.drop() if answer.then == "close" else sending.reset()
        return await sending.silence()

    async def _plain(self, chat: Chat, script: Script, reply: Reply, sending: Sending) -> web.StreamResponse:
        """The answer as it should be."""
        if not chat.stream:
            if script.rate is not None:
                await asyncio.sleep(reply.usage["completion_tokens"] / script.rate)
            return await sending.whole(200, self._dialect.document(reply))
        events = self._dialect.events(reply, script, include_usage=chat.include_usage)
        if script.rate is None and len(reply.tokens) <= ONE_WRITE:
            parts = [event for event, _ in events]
            return await sending.whole(200, b"".join([*parts, self._dialect.end]), content_type=SSE, events=len(parts))
        return await sending.stream(events, script.rate)

    async def _beginning(
        self, fault: Fault, chat: Chat, script: Script, reply: Reply, sending: Sending
    ) -> web.StreamResponse:
        """The first K events, or half of the document, left open; then the error if the fault sends one."""
        event, interruption = self._dialect.interrupted(overloaded=fault.name == "overloaded")
        if chat.stream:
            events = self._dialect.events(reply, script, include_usage=chat.include_usage)
            response = await sending.part_of_stream(islice(events, fault.after_events), script.rate)
            if fault.name in ERRORS:
                await response.write(event)
            return response
        if fault.name in ERRORS:
            return await sending.part_of_document(interruption, promised=len(interruption))
        document = self._dialect.document(reply)
        promised = None if fault.name == "short" else len(document)
        return await sending.part_of_document(document[: len(document) // 2], promised=promised)
