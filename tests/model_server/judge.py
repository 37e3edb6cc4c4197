"""The judge: refuses what a real provider refuses, and enters each request in the ledger."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import orjson
from aiohttp import web

from features.fake_provider.apis import APIS
from features.fake_provider.exchanges import Exchange
from features.fake_provider.grammar import ModelScript
from features.fake_provider.requests import Chat, InvalidRequest, RequestHistory
from tests.model_server import chat_completions, messages, responses, signed
from tests.model_server.ledger import Ledger

_LAST_USER: Final = 80
"""Characters of the last user text that the ledger keeps."""
_JUDGES: Final[Mapping[str, Callable[[dict[str, Any], Mapping[str, str]], None]]] = {
    "/v1/chat/completions": chat_completions.judge,
    "/v1/messages": messages.judge,
    "/v1/responses": responses.judge,
}
"""By path: what refuses a request."""


class Judge:
    """An observer of the fake provider."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def judge(self, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Raise InvalidRequest for what a real provider refuses."""
        judge(path, body, headers)

    def check(self, path: str, script: ModelScript, chat: Chat) -> None:
        """Raise Refused for a history that lacks what was to come back unchanged."""
        if path == "/v1/responses":
            responses.check(script, chat)
        elif path == "/v1/chat/completions" and script.provider is not None:
            signed.check(script.provider, chat.body)

    def begun(self, exchange: Exchange, request: web.BaseRequest, chat: Chat | None, at: tuple[float, float]) -> None:
        """Enter a request in the ledger."""
        history, headers = chat.history if chat else RequestHistory(), request.headers
        self._ledger.open(
            exchange,
            model=chat.model if chat else "",
            digest=chat.digest if chat else "",
            body=hashlib.sha256(chat.body).hexdigest() if chat else "",
            run=headers.get("X-Palaver-Run"),
            idempotency_key=headers.get("Idempotency-Key"),
            request_id=headers.get("X-Request-Id"),
            at=at[0],
            at_monotonic=at[1],
            messages=history.messages,
            turn=history.turn,
            call_index=history.call_index,
            stream=bool(chat and chat.stream),
            last_user=history.last_user[:_LAST_USER],
            tool_results=history.tool_results,
            breakpoints=history.breakpoints,
        )

    def ended(self, exchange: Exchange) -> None:
        """Write its end."""
        self._ledger.close(exchange)


def judge(path: str, body: bytes, headers: Mapping[str, str]) -> None:
    """Refuse what the provider at this path refuses.

    Raises:
        InvalidRequest: it does.
    """
    try:
        request = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"The body is not valid JSON: {error}") from None
    if not isinstance(request, dict):
        raise InvalidRequest("The body must be a JSON object.")
    _JUDGES[path](request, headers)


def read(path: str, body: bytes, headers: Mapping[str, str] = MappingProxyType({})) -> Chat:
    """Read a request that is not refused.

    Raises:
        InvalidRequest: it is.
    """
    judge(path, body, headers)
    (api,) = (each for each in APIS if each.path == path)
    return api.read(body)
