"""Rules of OpenAI's Responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from palaver.schemas.grammars import STRICT, ToolGrammar

from .provider_options import CHAT_COMPLETIONS_ALONE, Refusal
from .rules import EVERY_EFFORT, EVERY_OPTION, IMAGES_AND_FILES, ProtocolRules
from .thoughts import objects

_SUMMARIES_ALONE: Final = Refusal(
    'thinking is "summarized" or nothing with protocol = "responses"; use reasoning_effort of an agent',
    takes=(None, "summarized"),
)
_CACHES_ITSELF: Final = Refusal(
    'cache = "auto" does not go with protocol = "responses": the provider caches by itself', takes=(None, "off")
)


def _reasoning(fields: Mapping[str, Any]) -> str:
    return "\n\n".join(filter(None, map(_summary, objects(fields.get("items")))))


def _summary(item: dict[str, Any]) -> str:
    return "\n\n".join(str(part.get("text") or "") for part in objects(item.get("summary") or item.get("content")))


RESPONSES: Final = ProtocolRules(
    name="responses",
    options=EVERY_OPTION - {"seed", "stop"},
    formats=frozenset({"text", "json_object", "json_schema"}),
    efforts=EVERY_EFFORT,
    written=frozenset({
        "model", "input", "stream", "store", "include", "instructions", "tools", "tool_choice", "parallel_tool_calls",
        "temperature", "top_p", "max_output_tokens", "reasoning", "text", "previous_response_id", "conversation",
        "background", "stream_options",
    }),
    # Fewer tokens are refused: "integer below minimum value".
    least_output=16,
    grammar=STRICT,
    tools=ToolGrammar(described=True),
    parts={"user": IMAGES_AND_FILES, "assistant": frozenset(), "tool": IMAGES_AND_FILES},
    addresses=IMAGES_AND_FILES,
    provider_options=frozenset({"thinking", "max_output_tokens"}),
    refusals={
        "thinking": _SUMMARIES_ALONE,
        "cache": _CACHES_ITSELF,
        "max_completion_tokens": CHAT_COMPLETIONS_ALONE,
        "short_call_ids": CHAT_COMPLETIONS_ALONE,
    },
    key_beside_login=False,
    reasoning=_reasoning,
)  # fmt: skip
