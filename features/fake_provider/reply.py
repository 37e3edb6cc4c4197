"""The answer of the model: a pure function of the script and the request."""

from __future__ import annotations

import re
from typing import Any

from palaver.late import dataclass

from . import arguments
from .grammar import ModelScript, ScriptedFault
from .requests import Chat, InvalidRequest
from .signed import Made, made

WORD = re.compile(r"\s*\S+|\s+\Z")
UNKNOWN_TOOL = "no_such_tool"
BROKEN_ARGUMENTS = '{"expression": "1 + '
HUGE_PIECE = 16 * 1024
"""Bytes of text in one event of `huge-BYTES`: large enough to be quick, small enough to be streamed."""
MISFIT = '{"misfit": true}'
FILTERED_WORDS = 3
"""Words let through before a content filter stops the answer."""


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call; `arguments` is the text sent, JSON or not."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer in tokens (a token is a word with the space before it), or tool calls."""

    id: str
    model: str
    tokens: list[str]
    reasoning: list[str]
    calls: list[Call]
    finish_reason: str
    usage: dict[str, Any]
    made: Made
    digest: str
    """The digest of the messages that it answers."""
    cached: bool
    """The request had prompt-cache breakpoints."""
    search: int | None = None
    """The search of the turn that it pauses for; None if it does not."""


def compose(script: ModelScript, chat: Chat, fault: ScriptedFault | None) -> Reply:
    """Decide the answer. Raises InvalidRequest when the script wants a tool that is not offered."""
    history = chat.history
    step = history.call_index
    name = fault.name if fault else None
    tokens: list[str] = []
    calls: list[Call] = []
    if chat.tools and (chat.must_call or step <= len(script.plan)) and name not in ("huge", "filter", "pause"):
        calls = _calls(script, chat, name)
        finish_reason = "tool_calls"
    else:
        tokens, finish_reason = _answer(script, chat), "stop"
        if fault and name == "huge":
            whole, rest = divmod(fault.size, HUGE_PIECE)
            tokens = ["x" * HUGE_PIECE] * whole + (["x" * rest] if rest else [])
        elif name == "filter":
            tokens, finish_reason = tokens[:FILTERED_WORDS], "content_filter"
        elif fault and name == "pause":
            tokens, finish_reason = tokens[: fault.after_events], "pause"
        if chat.max_tokens is not None and len(tokens) > chat.max_tokens:
            tokens, finish_reason = tokens[: chat.max_tokens], "length"
        if script.room is not None and len(tokens) > (room := max(script.room - chat.prompt_tokens, 0)):
            tokens, finish_reason = tokens[:room], "window"
    more = made(script.provider, "".join(tokens), [(call.id, call.name, call.arguments) for call in calls])
    reasoning = [*(f" thought{i}" for i in range(1, script.reasoning + 1)), *more.reasoning]
    completion = len(tokens) + len(reasoning) + sum(1 + len(call.arguments.split()) for call in calls)
    return Reply(
        id=f"chatcmpl-{chat.digest[:16]}",
        model=chat.model,
        tokens=tokens,
        reasoning=reasoning,
        calls=calls,
        finish_reason=finish_reason,
        usage={
            "prompt_tokens": chat.prompt_tokens,
            "completion_tokens": completion,
            "total_tokens": chat.prompt_tokens + completion,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": len(reasoning)},
        },
        made=more,
        digest=chat.digest,
        cached=bool(history.breakpoints),
        search=step if finish_reason == "pause" else None,
    )


def _answer(script: ModelScript, chat: Chat) -> list[str]:
    history = chat.history
    if script.json is not None:
        tokens = WORD.findall(arguments.made(chat.schema, 1) if history.turn > script.json else MISFIT)
    elif script.say is not None:
        tokens = _words(0, script.say)
    elif history.tool_results and not script.echo:
        count, last = history.tool_results, history.last_result
        tokens = WORD.findall(f"done: {count} tool results, the last one: {last}")
    else:
        tokens = WORD.findall(f"echo: {history.last_user}")
    if script.words is not None:
        tokens = tokens[: script.words] + _words(len(tokens), script.words)
    return tokens


def _words(start: int, end: int) -> list[str]:
    """Numbered words, so that a watcher sees which one it lost or got twice."""
    return [f" w{i}" if i > 1 else "w1" for i in range(start + 1, end + 1)]


def _calls(script: ModelScript, chat: Chat, fault: str | None) -> list[Call]:
    history = chat.history
    step = history.call_index
    before = sum(script.plan[: step - 1])
    written = arguments.marked(history.last_user)
    calls: list[Call] = []
    for i in range(1, (script.plan[step - 1] if step <= len(script.plan) else 1) + 1):
        ordinal = before + i
        tool = _tool(script, chat.tools, ordinal)
        text = written or arguments.made(tool.get("parameters") or {}, ordinal)
        calls.append(
            Call(
                id=f"call_{history.turn}_{step}_{i}",
                name=UNKNOWN_TOOL if fault == "unknowntool" else tool["name"],
                arguments=BROKEN_ARGUMENTS if fault == "badargs" else text,
            )
        )
    return calls


def _tool(script: ModelScript, tools: list[dict[str, Any]], ordinal: int) -> dict[str, Any]:
    if script.use_each:
        return tools[(ordinal - 1) % len(tools)]
    if script.use is None:
        return tools[0]
    for tool in tools:
        if tool["name"] == script.use:
            return tool
    offered = ", ".join(tool["name"] for tool in tools)
    raise InvalidRequest(f"The model name says use-{script.use}, but offered are only: {offered}.", "tools")
