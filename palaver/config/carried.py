"""What the requests of each model protocol have a place for.

The API refuses by it what a protocol cannot carry, before a run is there; the workers' code of a protocol carries what
it says. A row here and a module in ``workers/protocols`` are one protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, get_args

from palaver.config.providers import LEAST_OF_RESPONSES
from palaver.schemas.content import FilePart, ImagePart, Part, inline_data
from palaver.schemas.model_options import ModelOptions, NamedTool, ReasoningEffort
from palaver.vocabulary.presets import ProtocolName

Role = Literal["user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Carried:
    """What one protocol carries."""

    options: frozenset[str]
    """Fields of ``ModelOptions``."""
    formats: frozenset[str]
    """Types of ``response_format``."""
    efforts: frozenset[str]
    """Values of ``reasoning_effort``."""
    parts: Mapping[Role, frozenset[str]]
    """Kinds of content besides text, by the role of the message."""
    addresses: frozenset[str]
    """Kinds of content whose URL may be an address that the provider fetches; any may be a ``data:`` URL."""
    written: frozenset[str]
    """Fields of a request that Palaver writes, or whose answers it does not read: ``extra_body`` may have none, in
    capitals or not, as servers in Go read them."""
    hottest: float = 2
    """The highest temperature."""
    least_output: int = 1
    """Tokens that an answer may be limited to at least."""
    lax: bool = True
    """Whether ``strict`` of a schema may be false: the model is not held to it while it writes."""
    media: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By kinds of content: media types of data that are sent along; any type of a kind that is not here. Text may be as
    it is or in base64, the rest is in base64."""

    def lacks(self, role: Role, part: Part) -> str:
        """Why ``part`` cannot be sent in a message of ``role``; empty if it can."""
        if part.type == "text":
            return ""
        if part.type not in self.parts[role]:
            return f"{NAMED[part.type]} in a message of role {role}"
        if isinstance(part, ImagePart | FilePart) and part.type not in self.addresses and not part.inline:
            return f"{NAMED[part.type]} by its address (send it as a data: URL)"
        if isinstance(part, ImagePart | FilePart) and part.inline and part.type in self.media:
            return _media_fault(part, self.media[part.type])
        return ""


def _media_fault(part: ImagePart | FilePart, types: frozenset[str]) -> str:
    """Why the data of ``part`` are not such as are taken; empty if they are."""
    taken = f"(send {' or '.join(sorted(types))}, as data:TYPE;base64,DATA)"
    found = inline_data(part.url)
    if found is None:
        return f"{NAMED[part.type]} whose data: URL has no data {taken}"
    kind, in_base64, data = found
    if kind not in types:
        return f"{NAMED[part.type]} of the type {kind:.80} {taken}"
    if not data:
        return f"{NAMED[part.type]} without any data"
    return "" if in_base64 or kind == "text/plain" else f"{NAMED[part.type]} that is not in base64 {taken}"


def refused_while_thinking(options: ModelOptions) -> Iterator[tuple[str, str]]:
    """Pointers to those of ``options`` that Anthropic refuses of a model that is told to think, each with what it would
    take (platform.claude.com, "Extended thinking": feature compatibility)."""
    if options.temperature not in (None, 1):
        yield "/temperature", "takes no temperature but 1"
    if options.top_p is not None and options.top_p < _LEAST_TOP_P:
        yield "/top_p", f"takes no top_p below {_LEAST_TOP_P:g}"
    if "top_k" in (options.extra_body or {}):
        yield "/extra_body/top_k", "takes no top_k"
    if options.tool_choice == "required" or isinstance(options.tool_choice, NamedTool):
        yield "/tool_choice", "takes no tool_choice but auto and none"


NAMED: Final[Mapping[str, str]] = MappingProxyType({"image": "an image", "file": "a file", "reasoning": "reasoning"})
"""Kinds of content in words."""
_LEAST_TOP_P: Final = 0.95
_EVERY_OPTION: Final = frozenset(ModelOptions.model_fields)
_EVERY_EFFORT: Final[frozenset[str]] = frozenset(get_args(ReasoningEffort))
_IMAGES_AND_FILES: Final = frozenset({"image", "file"})
_CHAT_COMPLETIONS: Final = Carried(
    options=_EVERY_OPTION,
    formats=frozenset({"text", "json_object", "json_schema"}),
    efforts=_EVERY_EFFORT,
    parts=MappingProxyType({"user": _IMAGES_AND_FILES, "assistant": frozenset(), "tool": _IMAGES_AND_FILES}),
    addresses=frozenset({"image"}),
    written=frozenset({
        "model", "messages", "stream", "stream_options", "tools", "tool_choice", "parallel_tool_calls", "temperature",
        "top_p", "seed", "stop", "max_tokens", "max_completion_tokens", "reasoning_effort", "response_format",
        "n", "functions", "function_call", "modalities", "audio",
    }),
)  # fmt: skip
_ANTHROPIC: Final = Carried(
    options=_EVERY_OPTION - {"seed"},
    formats=frozenset({"text", "json_schema"}),
    efforts=_EVERY_EFFORT - {"none", "minimal"},
    parts=MappingProxyType({"user": _IMAGES_AND_FILES, "assistant": frozenset(), "tool": _IMAGES_AND_FILES}),
    addresses=_IMAGES_AND_FILES,
    media=MappingProxyType({
        "image": frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"}),
        "file": frozenset({"application/pdf", "text/plain"}),
    }),
    written=frozenset({
        "model", "messages", "stream", "system", "tools", "tool_choice", "temperature", "top_p", "stop_sequences",
        "max_tokens", "output_config", "cache_control",
    }),
    hottest=1,
    lax=False,
)  # fmt: skip
_RESPONSES: Final = Carried(
    options=_EVERY_OPTION - {"seed", "stop"},
    formats=frozenset({"text", "json_object", "json_schema"}),
    efforts=_EVERY_EFFORT,
    parts=MappingProxyType({"user": _IMAGES_AND_FILES, "assistant": frozenset(), "tool": _IMAGES_AND_FILES}),
    addresses=_IMAGES_AND_FILES,
    written=frozenset({
        "model", "input", "stream", "store", "include", "instructions", "tools", "tool_choice", "parallel_tool_calls",
        "temperature", "top_p", "max_output_tokens", "reasoning", "text", "previous_response_id", "conversation",
        "background", "stream_options",
    }),
    least_output=LEAST_OF_RESPONSES,
)  # fmt: skip

CARRIED: Final[Mapping[ProtocolName, Carried]] = MappingProxyType(
    {"chat_completions": _CHAT_COMPLETIONS, "anthropic": _ANTHROPIC, "responses": _RESPONSES}
)
"""Every protocol, by its name in the providers file."""
