"""Bodies as OpenAI's clients send them, and answers as they read them. Unknown fields are left out, as clients of newer
versions send more than older servers know."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, RootModel, StrictBool, StrictFloat, StrictInt

from api.kit.lenient import LenientModel
from palaver.schemas.fields import AtMost, DataModel, Tags
from palaver.vocabulary.limits import limit_of

PairsOfText = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=16)
]
Items = Annotated[str | tuple[dict[str, Any], ...], AtMost("input_text", items="input_messages")]


class ConversationParam(LenientModel):
    """A conversation as an object."""

    id: str


class TextOptions(LenientModel):
    """The form of the answer."""

    format: dict[str, Any] | None = None


class ReasoningOptions(LenientModel):
    """The amount of thinking before an answer."""

    effort: str | None = None


class RunOptions(LenientModel):
    """Options that only Palaver has, for ``extra_body={"run": …}``."""

    budget: dict[str, Any] | None = None
    deadline: Any = None
    start_after: Any = None
    start_by: Any = None
    priority: StrictInt | None = Field(default=None, ge=0, le=9)
    tags: Tags = ()
    on_disconnect: Literal["cancel", "continue"] = "cancel"
    """The fate of a chat completion whose client is gone."""


class ModelParams(LenientModel):
    """The fields of both kinds of requests about the model's answers."""

    temperature: StrictFloat | None = None
    top_p: StrictFloat | None = None
    parallel_tool_calls: StrictBool | None = None
    tools: Annotated[tuple[dict[str, Any], ...], AtMost("agent_tools")] | None = None
    tool_choice: str | dict[str, Any] | None = None
    metadata: PairsOfText | None = None
    service_tier: str | None = None
    run: RunOptions | None = None


class ResponseCreate(ModelParams):
    """The body of ``POST /openai/v1/responses``."""

    model: Annotated[str, Field(max_length=300)] | None = None
    """``agent/NAME`` or ``NAME``, an agent on the server; or ``provider/name``, a model."""
    input: Items | None = None
    instructions: Annotated[str, AtMost("instructions")] | None = None
    background: StrictBool | None = None
    stream: StrictBool | None = None
    previous_response_id: Annotated[str, Field(max_length=80)] | None = None
    conversation: Annotated[str, Field(max_length=80)] | ConversationParam | None = None
    max_output_tokens: StrictInt | None = None
    max_tool_calls: StrictInt | None = Field(default=None, ge=1)
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    truncation: str | None = None

    @property
    def conversation_id(self) -> str | None:
        """The id of the conversation that it names."""
        return self.conversation.id if isinstance(self.conversation, ConversationParam) else self.conversation


class StreamOptions(LenientModel):
    """The additions to a stream of chunks."""

    include_usage: StrictBool | None = None


class ChatCreate(ModelParams):
    """The body of ``POST /openai/v1/chat/completions``."""

    model: Annotated[str, Field(max_length=300)]
    messages: Annotated[tuple[dict[str, Any], ...], AtMost("input_messages"), Field(min_length=1)]
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: StrictInt | None = None
    max_completion_tokens: StrictInt | None = None
    stop: str | tuple[str, ...] | None = None
    seed: StrictInt | None = None
    n: StrictInt | None = None
    reasoning_effort: str | None = None
    response_format: dict[str, Any] | None = None


class OpenAiCompletion(RootModel[dict[str, Any]]):
    """A chat completion, as OpenAI's clients read it."""


class OpenAiModel(DataModel):
    """A model that requests may name: an agent on the server, or a model of a provider."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str


class OpenAiModelList(DataModel):
    """All of them."""

    object: Literal["list"] = "list"
    data: list[OpenAiModel]


class ConversationCreate(LenientModel):
    """The body of ``POST /openai/v1/conversations``."""

    metadata: PairsOfText | None = None
    items: Annotated[tuple[dict[str, Any], ...], AtMost("input_messages")] | None = None


class ConversationUpdate(LenientModel):
    """The body of ``POST /openai/v1/conversations/{conversation_id}``."""

    metadata: PairsOfText


class ItemsCreate(LenientModel):
    """The body of ``POST /openai/v1/conversations/{conversation_id}/items``."""

    items: Annotated[tuple[dict[str, Any], ...], AtMost("input_messages"), Field(min_length=1)]


class OpenAiResponse(RootModel[dict[str, Any]]):
    """A response, as OpenAI's clients read it."""


class OpenAiItem(RootModel[dict[str, Any]]):
    """An item of a response or a conversation, told apart by `type`."""


class OpenAiItemList(DataModel):
    """A page of items."""

    object: Literal["list"] = "list"
    data: list[OpenAiItem]
    first_id: str
    last_id: str
    has_more: bool


class OpenAiDeleted(DataModel):
    """It is gone."""

    id: str
    object: str
    deleted: Literal[True] = True


class OpenAiConversation(DataModel):
    """A conversation."""

    id: str
    object: Literal["conversation"] = "conversation"
    created_at: int
    metadata: dict[str, str]


MOST_ITEMS: Final = 100
ANSWER_BYTES: Final = limit_of("answer_bytes")
