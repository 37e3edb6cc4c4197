"""Rules of Anthropic's Messages, as Claude and the endpoints that imitate it speak them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from palaver.schemas.content import IMAGE_TYPES
from palaver.schemas.grammars import CLAUDE, ToolGrammar
from palaver.schemas.model_options import ModelOptions, NamedTool

from .provider_options import CHAT_COMPLETIONS_ALONE
from .rules import EVERY_EFFORT, EVERY_OPTION, IMAGES_AND_FILES, OptionFault, ProtocolRules
from .thoughts import texts

_LEAST_TOP_P: Final = 0.95


def _refused_while_thinking(options: ModelOptions) -> Iterator[OptionFault]:
    """As platform.claude.com has it, "Extended thinking": feature compatibility."""
    if options.temperature not in (None, 1):
        yield ("temperature",), "takes no temperature but 1"
    if options.top_p is not None and options.top_p < _LEAST_TOP_P:
        yield ("top_p",), f"takes no top_p below {_LEAST_TOP_P:g}"
    if "top_k" in (options.extra_body or {}):
        yield ("extra_body", "top_k"), "takes no top_k"
    if options.tool_choice == "required" or isinstance(options.tool_choice, NamedTool):
        yield ("tool_choice",), "takes no tool_choice but auto and none"


def _reasoning(fields: Mapping[str, Any]) -> str:
    return "".join(texts(fields, ("blocks", "thinking")))


MESSAGES: Final = ProtocolRules(
    name="anthropic",
    options=EVERY_OPTION - {"seed"},
    formats=frozenset({"text", "json_schema"}),
    efforts=EVERY_EFFORT - {"none", "minimal"},
    written=frozenset({
        "model", "messages", "stream", "system", "tools", "tool_choice", "temperature", "top_p", "stop_sequences",
        "max_tokens", "output_config", "cache_control",
    }),
    hottest=1,
    lax=False,
    grammar=CLAUDE,
    tools=ToolGrammar(names=re.compile(r"[A-Za-z0-9_.-]{1,64}")),
    parts={"user": IMAGES_AND_FILES, "assistant": frozenset(), "tool": IMAGES_AND_FILES},
    addresses=IMAGES_AND_FILES,
    media={
        "image": IMAGE_TYPES,
        "file": frozenset({"application/pdf", "text/plain"}),
    },
    provider_options=frozenset({"cache", "thinking", "max_output_tokens"}),
    refusals={"max_completion_tokens": CHAT_COMPLETIONS_ALONE, "short_call_ids": CHAT_COMPLETIONS_ALONE},
    key_beside_login=True,
    caches=True,
    output_limit=32_000,
    thinking_on=frozenset({"adaptive", "summarized"}),
    refused_while_thinking=_refused_while_thinking,
    reasoning=_reasoning,
)  # fmt: skip
