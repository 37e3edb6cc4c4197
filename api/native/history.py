"""What becomes of a conversation's log without a run."""

from __future__ import annotations

from typing import Annotated

from starlette.responses import Response

from palaver.conversation_message import AppendedMessages
from palaver.fields import AtMost, Strict
from palaver.models import Message

from .. import operations
from ..answers import answer
from ..headers import IdempotencyKey
from ..operations import Backend, Caller
from .answers import REPLAYED
from .dialect import NATIVE, ConversationId


class NewMessages(Strict):
    """Words of the user."""

    input: Annotated[str | tuple[Message, ...], AtMost("input_text", items="input_messages")]
    """A text, or messages of the role user."""


@NATIVE.route(
    "POST",
    "/v1/conversations/{conversation_id}/messages",
    tag="conversations",
    summary="Say something without a run",
    examples={"words": {"input": "By the way, I like trains."}},
    answers={
        201: ("In the log. `Idempotency-Replayed: true`: it was before.", AppendedMessages),
        202: ("Taken into the run that is active.", AppendedMessages),
    },
    problems=(
        "idempotency_key_reused", "conversation_not_found", "conversation_full", "steering_full", "empty_input",
        "unsupported_content", "invalid_history", "store_nearly_full", "not_durable",
    ),
)  # fmt: skip
async def append(
    backend: Backend, caller: Caller, conversation_id: ConversationId, key: IdempotencyKey, wanted: NewMessages
) -> Response:
    """No model is called: the next run answers it, and one with an empty `input` answers nothing else. An active run is
    told it by its next model call."""
    taken = await operations.append(backend, conversation_id, wanted.input, caller, key=key)
    told = AppendedMessages(position=taken.position, run_id=taken.run_id)
    return answer(told, 201 if taken.run_id is None else 202, REPLAYED if taken.replayed else None)
