"""Messages that come in: none is empty, and they are whole turns, behind those that the conversation has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from palaver.errors import FieldError
from palaver.schemas.json_pointers import pointer
from palaver.schemas.models import Message, Submission, ToolCall
from palaver.vocabulary.limits import count_exceeded, limit_of

_ID: Final = limit_of("message_id")
_CALLS: Final = limit_of("message_calls")


def history_faults(submission: Submission) -> Iterator[FieldError]:
    """Yield the faults of the input of a new run, which may have none, to answer what is there."""
    if submission.input != ():
        yield from input_faults(submission.input)
    elif submission.conversation_id is None:
        yield FieldError("/input", "empty_input", "has no message, and a new conversation has none to answer")
    elif submission.start_after is not None or submission.on_conflict not in ("enqueue", "reject"):
        why = "has no message: the run answers what was said, at once, and goes with no start_after or on_conflict"
        yield FieldError("/input", "empty_input", why)
    if submission.on_conflict == "steer":
        why = "on_conflict steer puts words of the user into a run: the role must be user"
        yield from role_faults(submission.input, why)


def role_faults(input: str | Sequence[Message], why: str) -> Iterator[FieldError]:
    """Yield a fault for each message that is not the user's, where ``why`` says that no others may be."""
    for index, message in enumerate(() if isinstance(input, str) else input):
        if message.role != "user":
            yield FieldError(f"/input/{index}/role", "invalid_history", why)


def input_faults(input: str | Sequence[Message]) -> Iterator[FieldError]:
    """Yield the faults of a text or of messages that a model is to answer."""
    yield from said_faults(input)
    if input and not isinstance(input, str) and input[-1].role == "assistant":
        yield _broken(len(input) - 1, "the last message must be the user's or a tool's, for the model to answer")


def said_faults(input: str | Sequence[Message]) -> Iterator[FieldError]:
    """Yield the faults of a text or of messages, which are whole turns."""
    if isinstance(input, str):
        if not input.strip():
            yield FieldError("/input", "empty_input", "says nothing")
        return
    if not input:
        yield FieldError("/input", "empty_input", "has no message")
        return
    for index, message in enumerate(input):
        yield from _message_faults(index, message)
    yield from _turn_faults(input)


def _message_faults(index: int, message: Message) -> Iterator[FieldError]:
    if message.role != "tool" and not message.text.strip() and not message.tool_calls:
        yield FieldError(pointer(("input", index, "content")), "empty_input", "says nothing")
    if message.role != "assistant" and message.tool_calls:
        yield _broken(index, f"a {message.role} message has no tool_calls")
    if message.role == "tool" and not message.call_id:
        yield _broken(index, "a tool message needs the call_id of the call that it answers")
    if message.role != "tool" and message.call_id is not None:
        yield _broken(index, "only a tool message has a call_id")
    if len(message.name or "") > _ID:
        count_exceeded("message_id")
        yield _broken(index, f"a name has at most {_ID} characters")
    if len(message.tool_calls) > _CALLS:
        count_exceeded("message_calls")
        yield _broken(index, f"a message has at most {_CALLS} tool_calls")


def _turn_faults(messages: Sequence[Message]) -> Iterator[FieldError]:
    """Yield the faults of turns: every call has one result before the next message, and every result its call."""
    open_calls: dict[str, int] = {}
    seen: set[str] = set()
    for index, message in enumerate(messages):
        if message.role == "tool":
            call_id = message.call_id or ""
            if call_id in open_calls:
                del open_calls[call_id]
            elif call_id in seen:
                yield _broken(index, f"call {_shown(call_id)} has a second result")
            elif call_id:
                yield _broken(index, f"no call {_shown(call_id)} precedes this result")
            continue
        yield from _unanswered(open_calls)
        open_calls, seen = {}, set()
        for call in message.tool_calls:
            if not _named(call):
                yield _broken(index, f"a call needs an id and a name of 1 to {_ID} characters")
            elif call.id in seen:
                yield _broken(index, f"call {_shown(call.id)} is there twice")
            seen.add(call.id)
            open_calls[call.id] = index
    yield from _unanswered(open_calls)


def _named(call: ToolCall) -> bool:
    if max(len(call.id), len(call.name)) > _ID:
        count_exceeded("message_id")
        return False
    return bool(call.id and call.name)


def _unanswered(open_calls: Mapping[str, int]) -> Iterator[FieldError]:
    for call_id, index in open_calls.items():
        yield _broken(index, f"call {_shown(call_id)} has no result")


def _broken(index: int, message: str) -> FieldError:
    return FieldError(f"/input/{index}", "invalid_history", message)


def _shown(call_id: str) -> str:
    return repr(call_id[:64])
