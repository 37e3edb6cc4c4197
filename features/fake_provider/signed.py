"""Signatures and the like that providers add to a message and want back unchanged with it, each in its own words.

It is a function of what the message says, so that no memory of earlier requests is needed to tell whether it came back
as it was.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

import orjson

from palaver.late import dataclass

PROVIDERS = ("gemini", "deepseek", "kimi", "openrouter", "groq")
THOUGHTS = 6
"""Words of reasoning."""


@dataclass(frozen=True, slots=True)
class Made:
    """The additions of a provider to a message. All but `reasoning` is JSON, as it must come back."""

    reasoning: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    detail_pieces: tuple[str, ...] = ()
    """The same, as they come in a stream."""
    extra: str | None = None
    call_extras: tuple[str | None, ...] = ()


def made(provider: str | None, content: str, calls: Sequence[Sequence[str]]) -> Made:
    """The additions to a message that says `content` and asks for `calls`: id, name and arguments of each."""
    match provider:
        case "deepseek" | "kimi":
            return Made(reasoning=_thoughts(content, calls))
        case "gemini" if calls:
            # Of parallel calls only the first is signed.
            return Made(call_extras=(_signature(calls[0]), *[None] * (len(calls) - 1)))
        case "gemini":
            return Made(extra=_signature([content]))
        case "openrouter":
            return _details(_thoughts(content, calls))
    return Made()


def _thoughts(content: str, calls: Sequence[Sequence[str]]) -> tuple[str, ...]:
    digest = _digest([content, *(part for call in calls for part in call)])
    return tuple(f" {digest[4 * i : 4 * i + 4]}" for i in range(THOUGHTS))


def _signature(signed: Sequence[str]) -> str:
    return f'{{"google":{{"thought_signature":"{_sealed(signed)}","weight":1.50,"age":100000000000000000001}}}}'


def _details(thoughts: Sequence[str]) -> Made:
    more = ',"format":"anthropic-claude-v1","index":0'
    seal, text = _sealed(thoughts), orjson.dumps("".join(thoughts)).decode()
    hidden = f'{{"type":"reasoning.encrypted","id":null,"data":"{seal}","index":1,"z":1e2,"a":0.10}}'
    pieces = [f'{{"type":"reasoning.text","text":{orjson.dumps(thought).decode()}{more}}}' for thought in thoughts]
    return Made(
        details=(f'{{"type":"reasoning.text","text":{text}{more},"signature":"{seal}"}}', hidden),
        detail_pieces=(*pieces, f'{{"type":"reasoning.text"{more},"signature":"{seal}"}}', hidden),
    )


def _sealed(signed: Sequence[str]) -> str:
    return base64.b64encode(_digest(signed).encode()).decode()


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256(orjson.dumps(list(parts))).hexdigest()
