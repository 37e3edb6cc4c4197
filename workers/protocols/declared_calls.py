"""Calls as their tools declare them: a provider that does not take a tool's name for an argument was told another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import orjson

from palaver.schemas.arguments import readable
from palaver.schemas.models import ToolCall
from palaver.schemas.protocols import PROTOCOL_RULES
from palaver.schemas.tool_schemas import fitted_tool

from .port import ModelProtocol, ModelReply, Offer
from .verbatim import members


def as_declared(reply: ModelReply, offers: Sequence[Offer], protocol: ModelProtocol) -> ModelReply:
    """Return the reply with calls of the tools that were offered, whose arguments have the tools' own names."""
    grammar = PROTOCOL_RULES[protocol.name].tools
    if grammar.names is None or not reply.tool_calls:
        return reply
    called = {call.name for call in reply.tool_calls}
    named = {offer.name: fitted_tool(offer.parameters, grammar).names for offer in offers if offer.name in called}
    calls = tuple(_renamed(call, names) if (names := named.get(call.name)) else call for call in reply.tool_calls)
    return replace(reply, tool_calls=calls)


def _renamed(call: ToolCall, names: Mapping[str, str]) -> ToolCall:
    """The call with the arguments as the model wrote them, under other names."""
    if readable(call.arguments) is None:
        return call
    given = members(call.arguments.strip() or "{}")
    own = {names[name] if name in names and names[name] not in given else name: text for name, text in given.items()}
    return call.model_copy(update={"arguments": orjson.dumps({n: orjson.Fragment(t) for n, t in own.items()}).decode()})
