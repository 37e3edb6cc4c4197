"""A request for an answer, by whichever API: have it judged, look up its fault, play it."""

from __future__ import annotations

import asyncio
import time
from itertools import islice

from aiohttp import web

from . import raw
from .apis import ProviderApi
from .exchanges import Exchange, Exchanges, Observer, RefusedRequest
from .faults import HTML, waits
from .grammar import ModelScript, ScriptedFault, UnknownModel, parse
from .reply import Reply, compose
from .requests import Chat, InvalidRequest
from .sending import SSE, AnswerSender

ERRORS = ("errorchunk", "overloaded")
"""Faults that are errors in the middle of an answer."""
ONE_WRITE = 100
"""Tokens up to which a stream without a rate is one write: about 20 KB, which a socket takes at once."""


class Completions:
    """The handler. `stopping` is set before the server ends its open connections, not clients that left."""

    def __init__(self, api: ProviderApi, exchanges: Exchanges, observer: Observer, api_key: str | None) -> None:
        self._api = api
        self._exchanges = exchanges
        self._observer = observer
        self._api_key = api_key
        self.stopping = False

    def authorised(self, request: web.BaseRequest) -> bool:
        """Tell whether the request carries the key, if one is asked for."""
        return self._api_key is None or self._api.key(request.headers) == self._api_key

    def unauthorised(self) -> tuple[int, bytes]:
        """The answer to a request without it."""
        refused = self._api.refused("401")
        assert refused is not None
        return refused

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; whatever happens, its exchange is closed."""
        at = (time.time(), time.monotonic())
        api = self._api
        parsed: Chat | InvalidRequest
        try:
            body = await request.content.read()
            self._observer.judge(api.path, body, request.headers)
            parsed = api.read(body)
        except InvalidRequest as error:
            parsed = error
        chat = parsed if isinstance(parsed, Chat) else None
        exchange = self._exchanges.begin(request.headers.get("X-Palaver-Run"), chat)
        self._observer.begun(exchange, request, chat, at)
        sending = AnswerSender(request, exchange, api.id_header, api.end)
        outcome = "failed"
        try:
            if not self.authorised(request):
                outcome = "refused:authentication"
                return await sending.whole(*self.unauthorised())
            if isinstance(parsed, InvalidRequest):
                raise parsed
            return await self._play(parsed, parse(parsed.model), exchange, sending)
        except UnknownModel as error:
            outcome = "refused:unknown_model"
            return await sending.whole(404, api.error(404, str(error), "model_not_found"))
        except RefusedRequest as error:
            outcome = f"refused:{error.why}"
            return await sending.whole(400, error.body)
        except InvalidRequest as error:
            outcome = "refused:invalid_request"
            return await sending.whole(400, api.error(400, str(error), None, error.param))
        except (asyncio.CancelledError, ConnectionResetError):
            if exchange.ended_at is None:
                outcome = self._left(exchange)
            raise
        finally:
            self._close(exchange, outcome)

    def _close(self, exchange: Exchange, outcome: str) -> None:
        """Write down the end of a request; the first end stands."""
        if exchange.ended_at is None:
            exchange.ended_at, exchange.outcome = time.time(), outcome
            self._observer.ended(exchange)

    def _left(self, exchange: Exchange) -> str:
        """The outcome of a request whose connection ended before its answer did."""
        if self.stopping:
            return "stopped"
        exchange.closed_by_client_at = time.time()
        return f"fault:{exchange.fault}" if exchange.fault in ("hang", "stall", "raw") else "disconnected"

    async def _play(
        self, chat: Chat, script: ModelScript, exchange: Exchange, sending: AnswerSender
    ) -> web.StreamResponse:
        """Send what the script says. Raises InvalidRequest when it cannot be played on this request, and
        RefusedRequest."""
        self._observer.check(self._api.path, script, chat)
        fault = script.fault(chat.history.call_index, exchange.attempt)
        exchange.fault = fault.name if fault else None
        if fault and fault.name == "hang":
            await sending.silence()
        if fault and fault.name == "reset":
            self._close(exchange, "fault:reset")
            sending.reset()
            await sending.silence()
        reply = compose(script, chat, fault)
        if script.ttft:
            await asyncio.sleep(script.ttft)
        window = script.room if script.window is None else script.window
        if window is not None and chat.prompt_tokens > window:
            response = await sending.whole(400, self._api.window_exceeded(window, chat.prompt_tokens))
            self._close(exchange, "refused:context_length")
            return response
        if fault is None:
            response = await self._plain(chat, script, reply, sending)
        else:
            response = await self._faulty(fault, chat, script, reply, exchange, sending)
        self._close(exchange, f"fault:{fault.name}" if fault else "answered")
        return response

    async def _faulty(
        self,
        fault: ScriptedFault,
        chat: Chat,
        script: ModelScript,
        reply: Reply,
        exchange: Exchange,
        sending: AnswerSender,
    ) -> web.StreamResponse:
        refused = self._api.refused("429" if fault.name in ("429date", "429ms") else fault.name)
        if refused is not None:
            status, body = refused
            return await sending.whole(status, body, headers=waits(fault))
        match fault.name:
            case "html":
                return await sending.whole(200, HTML, content_type="text/html")
            case "raw":
                return await self._raw(raw.marked(chat.history.last_user), exchange, sending)
            case "badjson":
                if chat.stream:
                    return await sending.stream(self._api.broken_events(reply), None)
                document = self._api.document(reply)
                return await sending.whole(200, document[: len(document) // 2])
            case "empty":
                if chat.stream:
                    return await sending.stream(self._api.empty_events(reply), None)
                return await sending.whole(200, self._api.empty_document(reply))
            case "stall" | "cut" | "short" | "errorchunk" | "overloaded":
                response = await self._beginning(fault, chat, script, reply, sending)
                if fault.name == "cut":
                    self._close(exchange, "fault:cut")
                    sending.drop()
                if fault.name in ("cut", "stall"):
                    await sending.silence()
                await response.write_eof()
                return response
        return await self._plain(chat, script, reply, sending)

    async def _raw(
        self, answer: raw.RawAnswer | raw.RawBytes, exchange: Exchange, sending: AnswerSender
    ) -> web.StreamResponse:
        """Send what the request brought."""
        if isinstance(answer, raw.RawAnswer):
            return await sending.whole(answer.status, answer.body, headers=answer.headers)
        sending.write(answer.data)
        if answer.then != "hang":
            self._close(exchange, "fault:raw")
            sending.drop() if answer.then == "close" else sending.reset()
        return await sending.silence()

    async def _plain(self, chat: Chat, script: ModelScript, reply: Reply, sending: AnswerSender) -> web.StreamResponse:
        """The answer as it should be."""
        if not chat.stream:
            if script.rate is not None:
                await asyncio.sleep(reply.usage["completion_tokens"] / script.rate)
            return await sending.whole(200, self._api.document(reply))
        events = self._api.events(reply, script, include_usage=chat.include_usage)
        if script.rate is None and len(reply.tokens) <= ONE_WRITE:
            parts = [event for event, _ in events]
            return await sending.whole(200, b"".join([*parts, self._api.end]), content_type=SSE, events=len(parts))
        return await sending.stream(events, script.rate)

    async def _beginning(
        self, fault: ScriptedFault, chat: Chat, script: ModelScript, reply: Reply, sending: AnswerSender
    ) -> web.StreamResponse:
        """The first K events, or half of the document, left open; then the error if the fault sends one."""
        event, interruption = self._api.interrupted(overloaded=fault.name == "overloaded")
        if chat.stream:
            events = self._api.events(reply, script, include_usage=chat.include_usage)
            response = await sending.part_of_stream(islice(events, fault.after_events), script.rate)
            if fault.name in ERRORS:
                await response.write(event)
            return response
        if fault.name in ERRORS:
            return await sending.part_of_document(interruption, promised=len(interruption))
        document = self._api.document(reply)
        promised = None if fault.name == "short" else len(document)
        return await sending.part_of_document(document[: len(document) // 2], promised=promised)
