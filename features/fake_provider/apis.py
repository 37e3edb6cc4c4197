"""The APIs that the provider speaks: how a request is read in each, and how an answer looks there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from . import faults, messages_wire, requests, responses_wire, wire
from .grammar import ModelScript
from .reply import Reply
from .requests import Chat


class ProviderApi(Protocol):
    """One API."""

    path: str
    id_header: str
    """The header with the number of an answer."""
    end: bytes
    """The end of a stream, behind its events."""

    def key(self, headers: Mapping[str, str]) -> str | None:
        """The key that a request brings."""

    def read(self, body: bytes) -> Chat:
        """Reduce a request to what decides the answer. Raises InvalidRequest."""

    def document(self, reply: Reply) -> bytes:
        """An answer that is not streamed."""

    def events(self, reply: Reply, script: ModelScript, *, include_usage: bool) -> Iterator[wire.Event]:
        """The same as events of a stream."""

    def empty_document(self, reply: Reply) -> bytes:
        """An answer that says nothing."""

    def empty_events(self, reply: Reply) -> Iterator[wire.Event]:
        """The same as a stream."""

    def broken_events(self, reply: Reply) -> Iterator[wire.Event]:
        """A stream whose second event is no JSON."""

    def error(self, status: int, message: str, code: str | None = None, param: str | None = None) -> bytes:
        """The body of an error."""

    def refused(self, name: str) -> tuple[int, bytes] | None:
        """Status and body of a fault that is an error answer; None for every other fault."""

    def window_exceeded(self, window: int, tokens: int) -> bytes:
        """The body for a prompt of more than `window` tokens."""

    def interrupted(self, *, overloaded: bool) -> tuple[bytes, bytes]:
        """An error in the middle of an answer: as an event of a stream, and as a document."""


class ChatCompletions:
    """OpenAI's."""

    path = "/v1/chat/completions"
    id_header = "X-Request-Id"
    end = wire.DONE
    read = staticmethod(requests.chat_completion)
    document = staticmethod(wire.document)
    events = staticmethod(wire.events)
    empty_document = staticmethod(wire.empty_document)
    empty_events = staticmethod(wire.empty_events)
    broken_events = staticmethod(wire.broken_events)
    refused = staticmethod(faults.refused)
    window_exceeded = staticmethod(faults.window_exceeded)

    def key(self, headers: Mapping[str, str]) -> str | None:
        """A bearer token."""
        return headers.get("Authorization", "").removeprefix("Bearer ") or None

    def error(self, status: int, message: str, code: str | None = None, param: str | None = None) -> bytes:
        """OpenAI's shape."""
        return wire.error(message, "invalid_request_error", code, param)

    def interrupted(self, *, overloaded: bool) -> tuple[bytes, bytes]:
        """As gateways say it."""
        text, kind, code = "The upstream provider failed while generating.", "server_error", "502"
        if overloaded:
            text, kind, code = "Overloaded", "overloaded_error", "529"
        body = wire.error(text, kind, code)
        return b"data: " + body + b"\n\n", body


class Messages:
    """Anthropic's."""

    path = "/v1/messages"
    id_header = "request-id"
    end = b""
    read = staticmethod(requests.message)
    document = staticmethod(messages_wire.document)
    events = staticmethod(messages_wire.events)
    empty_document = staticmethod(messages_wire.empty_document)
    empty_events = staticmethod(messages_wire.empty_events)
    broken_events = staticmethod(messages_wire.broken_events)
    error = staticmethod(messages_wire.error)
    refused = staticmethod(messages_wire.refused)
    window_exceeded = staticmethod(messages_wire.window_exceeded)
    interrupted = staticmethod(messages_wire.interrupted)

    def key(self, headers: Mapping[str, str]) -> str | None:
        """A header of its own."""
        return headers.get("X-Api-Key")


class Responses(ChatCompletions):
    """OpenAI's newer one: errors are as in the older one."""

    path = "/v1/responses"
    end = b""
    read = staticmethod(requests.response)
    document = staticmethod(responses_wire.document)
    events = staticmethod(responses_wire.events)
    empty_document = staticmethod(responses_wire.empty_document)
    empty_events = staticmethod(responses_wire.empty_events)
    broken_events = staticmethod(responses_wire.broken_events)
    interrupted = staticmethod(responses_wire.interrupted)


APIS: tuple[ProviderApi, ...] = (ChatCompletions(), Messages(), Responses())
