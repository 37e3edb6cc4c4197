"""Conversations and their items."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import orjson
from pydantic import ConfigDict, TypeAdapter
from starlette.responses import Response

from api.http.answers import answer
from api.http.audit import detail
from api.kit.lenient import refusing
from api.kit.signatures import InPath
from palaver import operations
from palaver.errors import FieldError, Refused
from palaver.operations import Backend, Caller
from palaver.schemas.conversation import Conversation, ConversationMessage, ConversationPatch, NewConversation
from palaver.schemas.models import Message

from .dialect import OPENAI, ConversationInPath
from .items import input_items
from .paging import ItemsQuery, list_of
from .references import resolved
from .wire import (
    ConversationCreate,
    ConversationUpdate,
    ItemsCreate,
    OpenAiConversation,
    OpenAiDeleted,
    OpenAiItem,
    OpenAiItemList,
)

_MESSAGES: Final[TypeAdapter[tuple[Message, ...]]] = TypeAdapter(
    tuple[Message, ...], config=ConfigDict(defer_build=True)
)
_POSITION: Final = re.compile(r"(?:msg|fc)_([1-9][0-9]{0,12})(?:_[0-9]{1,3})?|([1-9][0-9]{0,12})_output")
_EMPTY: Final = ConversationCreate()
_NO_PLACE: Final = "are instructions, or answer a call that is not among them: each call comes with its output"

ItemInPath = Annotated[str, InPath("The item's id.")]


@OPENAI.route(
    "POST",
    "/openai/v1/conversations",
    scope="runs:submit",
    tag="openai",
    summary="Create a conversation",
    examples={"smallest": {}, "with items": {"items": [{"type": "message", "role": "user", "content": "hello"}]}},
    answers={200: ("The conversation.", OpenAiConversation)},
    problems=("unsupported_content", "conversation_full", "tenant_erased", "store_nearly_full", "not_durable"),
)
async def create_conversation(backend: Backend, caller: Caller, body: ConversationCreate = _EMPTY) -> Response:
    """Responses name it as `conversation`. Its items are messages, and calls with their outputs."""
    messages = await _messages(backend, caller, body.items or ())
    with refusing():
        wanted = NewConversation(metadata=body.metadata or {})
    made, _ = await operations.create_conversation(backend, wanted, caller)
    if messages:
        await operations.append(backend, made.id, messages, caller, turns=True)
    detail(created=made.id)
    return answer(_shown(made))


@OPENAI.route(
    "GET",
    "/openai/v1/conversations/{conversation_id}",
    scope="runs:read",
    tag="openai",
    summary="Retrieve a conversation",
    answers={200: ("The conversation.", OpenAiConversation)},
    problems=("conversation_not_found",),
)
async def retrieve_conversation(backend: Backend, conversation_id: ConversationInPath) -> Response:
    """Its metadata, and when it began."""
    return answer(_shown(await operations.read_conversation(backend, conversation_id)))


@OPENAI.route(
    "POST",
    "/openai/v1/conversations/{conversation_id}",
    scope="runs:act",
    tag="openai",
    summary="Change a conversation",
    examples={"metadata": {"metadata": {"topic": "demo"}}},
    answers={200: ("The conversation.", OpenAiConversation)},
    problems=("conversation_not_found", "store_nearly_full", "not_durable"),
)
async def update_conversation(
    backend: Backend, caller: Caller, conversation_id: ConversationInPath, body: ConversationUpdate
) -> Response:
    """The metadata takes the place of what there was."""
    with refusing():
        wanted = ConversationPatch(metadata=body.metadata)
    return answer(_shown(await operations.change_conversation(backend, conversation_id, wanted, caller)))


@OPENAI.route(
    "DELETE",
    "/openai/v1/conversations/{conversation_id}",
    scope="runs:act",
    tag="openai",
    summary="Delete a conversation",
    answers={200: ("It is gone.", OpenAiDeleted)},
    problems=("conversation_not_found", "conversation_busy", "not_durable", "agent_not_allowed"),
)
async def delete_conversation(backend: Backend, caller: Caller, conversation_id: ConversationInPath) -> Response:
    """Forget a conversation none of whose responses is going on, with its responses and items."""
    await operations.delete_conversation(backend, conversation_id, caller)
    return answer(OpenAiDeleted(id=conversation_id, object="conversation.deleted"))


@OPENAI.route(
    "GET",
    "/openai/v1/conversations/{conversation_id}/items",
    scope="runs:read",
    tag="openai",
    summary="List the items of a conversation",
    answers={200: ("A page of items.", OpenAiItemList)},
    problems=("conversation_not_found", "invalid_cursor"),
)
async def list_conversation_items(backend: Backend, conversation_id: ConversationInPath, query: ItemsQuery) -> Response:
    """Its messages, calls of tools, on either side, and their outputs, as models see them."""
    newest = query.order == "desc"
    after = 0
    if query.after is not None:
        after = _position(query.after) + (1 if newest else -1)
    items, more = list[dict[str, Any]](), True
    behind = query.after is None
    while more and len(items) <= query.limit:
        page = await operations.read_messages(
            backend, conversation_id, after=after, limit=query.limit + 1, newest_first=newest
        )
        for message in page.data:
            for item in reversed(items_of(message)) if newest else items_of(message):
                if behind:
                    items.append(item)
                behind = behind or item["id"] == query.after
        if not behind:
            raise Refused("invalid_cursor", "There is no item of this id in the conversation.")
        after, more = page.next_after, page.has_more
    return answer(list_of(items[: query.limit], has_more=more or len(items) > query.limit))


@OPENAI.route(
    "POST",
    "/openai/v1/conversations/{conversation_id}/items",
    scope="runs:submit",
    tag="openai",
    summary="Add items to a conversation",
    examples={
        "the user's words": {"items": [{"type": "message", "role": "user", "content": "hello"}]},
        "a turn": {
            "items": [
                {"type": "message", "role": "user", "content": "the weather?"},
                {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
                {"type": "message", "role": "assistant", "content": "It is sunny."},
            ]
        },
    },
    answers={200: ("The items.", OpenAiItemList)},
    problems=(
        "conversation_not_found", "conversation_busy", "unsupported_content", "invalid_history", "conversation_full",
        "steering_full", "store_nearly_full", "not_durable",
    ),
)  # fmt: skip
async def create_conversation_items(
    backend: Backend, caller: Caller, conversation_id: ConversationInPath, body: ItemsCreate
) -> Response:
    """Messages, and calls with their outputs, without a response of their own. One that is going on is told of the
    user's at its next model call; they are in the list from then on. Others are taken where none is."""
    messages = await _messages(backend, caller, body.items, conversation_id)
    if not messages:
        return answer(list_of([], has_more=False))
    appended = await operations.append(backend, conversation_id, messages, caller, turns=True)
    if appended.position is None:
        return answer(list_of([], has_more=False))
    first = appended.position - len(messages) + 1
    shown = [
        item
        for place, message in enumerate(messages)
        for item in input_items(str(first + place), message.model_dump(mode="json"))
    ]
    return answer(list_of(shown, has_more=False))


@OPENAI.route(
    "GET",
    "/openai/v1/conversations/{conversation_id}/items/{item_id}",
    scope="runs:read",
    tag="openai",
    summary="Retrieve an item of a conversation",
    answers={200: ("The item.", OpenAiItem)},
    problems=("conversation_not_found", "not_found"),
)
async def retrieve_conversation_item(
    backend: Backend, conversation_id: ConversationInPath, item_id: ItemInPath
) -> Response:
    """One item by its id."""
    try:
        position = _position(item_id)
    except Refused:
        position = 0
    page = await operations.read_messages(backend, conversation_id, after=max(position - 1, 0), limit=1)
    for message in page.data:
        for item in items_of(message):
            if item["id"] == item_id:
                return answer(OpenAiItem(item))
    raise Refused("not_found", "There is no item of this id in the conversation.")


def items_of(message: ConversationMessage) -> list[dict[str, Any]]:
    """Return the items that a message of the log is; none if models are not told of it any more."""
    if message.withdrawn or message.nudge:
        return []
    return input_items(str(message.position), message.model_dump(mode="json"))


def _position(item_id: str) -> int:
    match = _POSITION.fullmatch(item_id)
    if match is None:
        raise Refused("invalid_cursor", "There is no item of this id in the conversation.")
    return int(match[1] or match[2])


async def _messages(
    backend: Backend, caller: Caller, items: Sequence[Mapping[str, Any]], beside: str | None = None
) -> tuple[Message, ...]:
    given = (await resolved(backend, caller, items, "/items", beside=beside)).read(beside)
    if given.answers or given.instructions:
        raise Refused.of_faults([FieldError("/items", "unsupported_content", _NO_PLACE)])
    with refusing("/items"):
        return _MESSAGES.validate_json(orjson.dumps(given.messages))


def _shown(conversation: Conversation) -> OpenAiConversation:
    return OpenAiConversation(
        id=conversation.id,
        created_at=int(conversation.created_at.timestamp()),
        metadata=conversation.metadata,
    )
