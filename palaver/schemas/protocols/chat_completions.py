"""Rules of OpenAI's chat completions, as most providers and local servers speak them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from palaver.schemas.grammars import STRICT, ToolGrammar

from .provider_options import Refusal
from .rules import EVERY_EFFORT, EVERY_OPTION, IMAGES_AND_FILES, ProtocolRules
from .thoughts import texts

_OTHERS_THINK: Final = Refusal(
    'thinking goes with protocol = "anthropic" or "responses"; here, use reasoning_effort of an agent'
)


def _reasoning(fields: Mapping[str, Any]) -> str:
    """Either field is readable reasoning; one says what the other does."""
    if whole := fields.get("reasoning_content") or fields.get("reasoning"):
        return str(whole)
    details = (("reasoning_details", "text"), ("reasoning_details", "summary"))
    return "".join(texts(fields, *details, ("thinking_blocks", "thinking")))


CHAT_COMPLETIONS: Final = ProtocolRules(
    name="chat_completions",
    options=EVERY_OPTION,
    formats=frozenset({"text", "json_object", "json_schema"}),
    efforts=EVERY_EFFORT,
    written=frozenset({
        "model", "messages", "stream", "stream_options", "tools", "tool_choice", "parallel_tool_calls", "temperature",
        "top_p", "seed", "stop", "max_tokens", "max_completion_tokens", "reasoning_effort", "response_format",
        "n", "functions", "function_call", "modalities", "audio",
    }),
    grammar=STRICT,
    tools=ToolGrammar(described=True),
    parts={"user": IMAGES_AND_FILES, "assistant": frozenset(), "tool": IMAGES_AND_FILES},
    addresses=frozenset({"image"}),
    provider_options=frozenset({"cache", "max_output_tokens", "max_completion_tokens", "short_call_ids"}),
    refusals={"thinking": _OTHERS_THINK},
    key_beside_login=False,
    reasoning=_reasoning,
)  # fmt: skip
