"""Options of a provider: the fields of its entry that mean something to some protocols alone."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal

from pydantic import ConfigDict, Field

from palaver.late import dataclass
from palaver.schemas.fields import DataModel

Thinking = Literal["adaptive", "summarized", "off"]
"""The thinking of a model before it answers: as much as it finds right, the same and shown in words, or none."""


class ProviderOptions(DataModel):
    """The options of a provider. The rules of each protocol say which of them it has."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cache: Literal["auto", "off"] | None = None
    """Cache breakpoints in prompts, ``cache_control`` on blocks of content, or none. None: as its protocol has it."""
    thinking: Thinking | None = None
    """None leaves it to the model."""
    max_output_tokens: int | None = Field(default=None, ge=1, le=10_000_000)
    """The limit of an answer to an agent that does not say it itself."""
    max_completion_tokens: bool = False
    """True if a request calls that so, as OpenAI's models that think want it; most others know ``max_tokens``."""
    short_call_ids: bool = False
    """True if ids of calls are made to have nine letters and digits, as Mistral wants them."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why an option of a provider does not go with a protocol."""

    sentence: str
    takes: Collection[object] = (None, False)
    """Its values that go with it nevertheless; else those alone that say nothing."""


CHAT_COMPLETIONS_ALONE: Final = Refusal(
    'max_completion_tokens and short_call_ids go with protocol = "chat_completions"'
)
"""Servers differ in these where they imitate OpenAI, and there alone."""
