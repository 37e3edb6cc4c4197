"""The shape of the rules of a protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final, Literal, get_args

from palaver.late import dataclass
from palaver.schemas.content import FilePart, ImagePart, Part, inline_data
from palaver.schemas.grammars import Grammar, ToolGrammar
from palaver.schemas.model_options import JsonSchemaFormat, ModelOptions, ReasoningEffort

from .provider_options import ProviderOptions, Refusal

Role = Literal["user", "assistant", "tool"]
OptionFault = tuple[tuple[str, ...], str]
"""The path of an option, and why it cannot be sent."""


def _takes_every_option(options: ModelOptions) -> Iterator[OptionFault]:
    yield from ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolRules:
    """The rules of one protocol."""

    name: str
    """The ``protocol`` of a provider."""

    options: frozenset[str]
    """Fields of ``ModelOptions`` that a request has a place for."""
    formats: frozenset[str]
    """Types of ``response_format``."""
    efforts: frozenset[str]
    """Values of ``reasoning_effort``."""
    written: frozenset[str]
    """Fields of a request that Palaver writes, or whose answers it does not read: ``extra_body`` may have none, in
    capitals or not, as servers in Go read them."""
    hottest: float = 2
    """The highest temperature."""
    least_output: int = 1
    """Tokens that an answer may be limited to at least."""
    lax: bool = True
    """True if ``strict`` of a schema may be false: the model is not held to it while it writes."""

    grammar: Grammar
    """The schemas of answers that a model is held to."""
    tools: ToolGrammar
    """The schemas of tools."""

    parts: Mapping[Role, frozenset[str]]
    """Kinds of content besides text, by the role of the message."""
    addresses: frozenset[str]
    """Kinds of content whose URL may be an address that the provider fetches; any may be a ``data:`` URL."""
    media: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By kinds of content: media types of data that are sent along; any type of a kind that is not here. Text may be as
    it is or in base64, the rest is in base64."""

    provider_options: frozenset[str]
    """Fields of ``ProviderOptions`` that mean something to it."""
    refusals: Mapping[str, Refusal]
    """Fields of ``ProviderOptions`` that do not go with it, all or some of their values."""
    key_beside_login: bool
    """True if a request has room for a key and for a login that stands in the address."""
    caches: bool = False
    """True if prompts get cache breakpoints unless the provider's entry says otherwise."""
    output_limit: int | None = None
    """The limit of answers at an agent's own endpoint, where a request has to have one. A provider's entry has to say
    one. None: a request needs none."""
    thinking_on: frozenset[str] = frozenset()
    """Values of a provider's ``thinking`` that make a model think, and do not only make it say what it thinks."""
    refused_while_thinking: Callable[[ModelOptions], Iterator[OptionFault]] = _takes_every_option
    """Yields the options that a model that is told to think does not take, and what it would take."""

    reasoning: Callable[[Mapping[str, Any]], str]
    """Reads the model's thoughts, as people can read them, from the fields that a provider wants back."""

    def option_faults(self, options: ModelOptions, model: str) -> Iterator[OptionFault]:
        """Yield the options that ``model``, whose provider speaks this protocol, cannot be sent."""
        speaks = f"cannot be sent to {model}: its provider speaks {self.name}, which"
        for path, lack in self._lacks(options):
            yield path, f"{speaks} {lack}"
        for name in options.extra_body or {}:
            if (written := name.casefold()) in self.written:
                own = f": use {written} of the agent" if written in ModelOptions.model_fields else ""
                yield ("extra_body", name), f"is a field that Palaver writes itself{own}"

    def thinking_faults(self, options: ModelOptions, model: str) -> Iterator[OptionFault]:
        """Yield the options that ``model``, which its provider's table makes think, does not take."""
        speaks = f"cannot be sent to {model}: its provider's table has thinking on, and a model that thinks"
        for path, takes in self.refused_while_thinking(options):
            yield path, f"{speaks} {takes}"

    def answer_schema(self, wanted: JsonSchemaFormat) -> dict[str, Any]:
        """Return the schema of ``wanted`` as it is sent.

        Raises:
            NotTaken, Unfit: the model would not be held to it.
        """
        # What fits schemas needs more than the SDK has, which imports this module.
        from palaver.schemas.answer_schemas import fitted

        is_held = wanted.strict or not self.lax
        return fitted(wanted.json_schema, self.grammar) if is_held else wanted.json_schema

    def sent_schema(self, wanted: JsonSchemaFormat) -> dict[str, Any]:
        """The same; of an agent that was admitted by an older version, as it is: the provider has the last word."""
        from palaver.schemas.answer_schemas import NotTaken
        from palaver.schemas.json_schemas import Unfit

        try:
            return self.answer_schema(wanted)
        except (NotTaken, Unfit):
            return wanted.json_schema

    def lacks(self, role: Role, part: Part) -> str:
        """Say why ``part`` cannot be sent in a message of ``role``; empty if it can."""
        if part.type == "text":
            return ""
        if part.type not in self.parts[role]:
            return f"{_NAMED[part.type]} in a message of role {role}"
        if isinstance(part, ImagePart | FilePart) and part.type not in self.addresses and not part.inline:
            return f"{_NAMED[part.type]} by its address (send it as a data: URL)"
        if isinstance(part, ImagePart | FilePart) and part.inline and part.type in self.media:
            return _media_fault(part, self.media[part.type])
        return ""

    def provider_faults(self, options: ProviderOptions) -> Iterator[str]:
        """Yield a sentence for what in a provider's entry does not go with the protocol."""
        limit = options.max_output_tokens
        if self.output_limit is not None and limit is None:
            yield f'max_output_tokens is needed with protocol = "{self.name}": how long an answer may be'
        if limit is not None and limit < self.least_output:
            yield f'max_output_tokens is at least {self.least_output} with protocol = "{self.name}"'
        for name, refusal in self.refusals.items():
            if getattr(options, name) not in refusal.takes:
                yield refusal.sentence

    def _lacks(self, options: ModelOptions) -> Iterator[OptionFault]:
        for name in ModelOptions.model_fields:
            if name not in self.options and getattr(options, name) is not None:
                yield (name,), "has no such option"
        if options.response_format is not None and options.response_format.type not in self.formats:
            yield ("response_format", "type"), "has no such format"
        elif isinstance(options.response_format, JsonSchemaFormat):
            yield from self._schema_faults(options.response_format)
        if options.reasoning_effort is not None and options.reasoning_effort not in self.efforts:
            yield ("reasoning_effort",), "has no such effort"
        if options.temperature is not None and options.temperature > self.hottest:
            yield ("temperature",), f"takes at most {self.hottest:g}"
        if options.max_output_tokens is not None and options.max_output_tokens < self.least_output:
            yield ("max_output_tokens",), f"takes at least {self.least_output}"
        if not self.lax and getattr(options.response_format, "strict", None) is False:
            yield ("response_format", "strict"), "always holds the model to the schema: leave it out"

    def _schema_faults(self, wanted: JsonSchemaFormat) -> Iterator[OptionFault]:
        from palaver.schemas.answer_schemas import NotTaken
        from palaver.schemas.json_schemas import Unfit

        try:
            self.answer_schema(wanted)
        except NotTaken as error:
            yield ("response_format", "schema", *map(str, error.path)), f"takes no such schema: it {error}"
        except Unfit:
            pass  # refused for every model


EVERY_OPTION: Final = frozenset(ModelOptions.model_fields)
EVERY_EFFORT: Final[frozenset[str]] = frozenset(get_args(ReasoningEffort))
IMAGES_AND_FILES: Final = frozenset({"image", "file"})
_NAMED: Final[Mapping[str, str]] = {"image": "an image", "file": "a file", "reasoning": "reasoning"}
"""Kinds of content in words."""


def _media_fault(part: ImagePart | FilePart, types: frozenset[str]) -> str:
    """Say why the data of ``part`` are not such as are taken; empty if they are."""
    taken = f"(send {' or '.join(sorted(types))}, as data:TYPE;base64,DATA)"
    inline = inline_data(part.sent_url)
    if inline is None:
        return f"{_NAMED[part.type]} whose data: URL has no data {taken}"
    kind, in_base64, data = inline
    if kind not in types:
        return f"{_NAMED[part.type]} of the type {kind:.80} {taken}"
    if not data:
        return f"{_NAMED[part.type]} without any data"
    return "" if in_base64 or kind == "text/plain" else f"{_NAMED[part.type]} that is not in base64 {taken}"
