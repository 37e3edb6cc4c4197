"""Requests as the AI SDK's transport sends them. Of the messages the last one is read: the server has the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints, ValidationError

from api.kit.lenient import refusing_at
from palaver.errors import Refused
from palaver.schemas.actions import ApprovalDecision, Item, QuestionAnswer, ToolOutput
from palaver.schemas.content import FilePart, ImagePart, Part, TextPart
from palaver.schemas.fields import Metadata, Strict, Tags
from palaver.schemas.models import Message, OnConflict
from palaver.vocabulary.limits import limit_of

from .dialect import ChatId

_ID: Final = 200
_REASON: Final = limit_of("deny_reason")
_ANSWERED: Final = ("approval-responded", "output-available", "output-error")
"""States of parts with answers; compared, as what comes may be no text."""


class ChatRequest(Strict):
    """The body of a message, of answers to calls, or of a wish for another answer."""

    id: ChatId
    messages: tuple[dict[str, Any], ...] = Field(
        min_length=1, description="The messages of the chat. Only the last one is read: send no more than that."
    )
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    messageId: Annotated[str, StringConstraints(max_length=_ID)] | None = None
    on_conflict: OnConflict = Field(
        default="enqueue",
        description="What becomes of a message while another answer is written: it waits, is refused, ends that, or "
        "goes into it (`steer`).",
    )
    metadata: Metadata = Field(default={}, description="Of the run.")
    tags: Tags = ()

    @property
    def place(self) -> str:
        """The place of the last message in the body."""
        return f"/messages/{len(self.messages) - 1}"


def id_of(message: Mapping[str, Any], place: str) -> str:
    """Return the id of a message.

    Raises:
        Refused: it has none that can be used.
    """
    message_id = message.get("id")
    if not isinstance(message_id, str) or not 1 <= len(message_id) <= _ID:
        raise Refused.at(f"{place}/id", f"must be a text of 1 to {_ID} characters")
    return message_id


def user_message(message: Mapping[str, Any], place: str) -> Message:
    """Return what the user says.

    Raises:
        Refused: the parts of it that cannot be taken.
    """
    made: list[Part] = [_part(part, f"{place}/parts/{at}") for at, part in enumerate(_parts(message, place))]
    with refusing_at(f"{place}/parts"):
        return Message(role="user", content=tuple(made))


def answers_in(message: Mapping[str, Any], place: str) -> dict[str, Item]:
    """Return the answers of the last step of an assistant's message, by the ids of actions and of calls.

    Raises:
        Refused: one of them is no answer.
    """
    found: dict[str, Item] = {}
    for at, part in enumerate(_parts(message, place)):
        if part.get("type") == "step-start":
            found = {}
        elif part.get("type") == "data-palaver-question":
            found.update(_form(part, f"{place}/parts/{at}"))
        elif part.get("type") == "data-palaver-approval":
            found.update(_below(part, f"{place}/parts/{at}"))
        elif part.get("state") in _ANSWERED:
            found.update(_answer(part, f"{place}/parts/{at}"))
    return found


def _parts(message: Mapping[str, Any], place: str) -> Sequence[dict[str, Any]]:
    parts = message.get("parts")
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise Refused.at(f"{place}/parts", "must be a list of objects")
    return parts


def _part(part: Mapping[str, Any], place: str) -> Part:
    match part:
        case {"type": "text", "text": str() as text}:
            return TextPart(type="text", text=text)
        case {"type": "file", "url": str() as url, "mediaType": str() as media_type}:
            name = part.get("filename")
            try:
                if media_type.partition("/")[0] == "image":
                    return ImagePart(type="image", url=url)
                return FilePart(type="file", url=url, name=name if isinstance(name, str) else None)
            except ValidationError as error:
                (misfit, *_) = error.errors(include_url=False, include_input=False)
                if misfit["loc"] == ("name",):
                    raise Refused.at(f"{place}/filename", misfit["msg"]) from None
                inward = misfit["msg"] if misfit["type"] == "unsupported_content" else None
                raise Refused.at(f"{place}/url", inward or "must be an address (http, https), or a data: URL") from None
    raise Refused.at(
        place, "must be a text, or a file with url and mediaType: nothing else of a user is sent to models"
    )


def _answer(part: Mapping[str, Any], place: str) -> dict[str, Item]:
    match part:
        case {"state": "approval-responded", "approval": {"id": str() as action, "approved": bool() as approved}}:
            return {action: _decision(action, approved, part["approval"].get("reason"), f"{place}/approval")}
        case {"state": "approval-responded"}:
            raise Refused.at(f"{place}/approval", "must have id, a text, and approved, true or false")
        case {"providerExecuted": True} | {"approval": dict()}:
            # Of a call that was made here.
            return {}
        case {"toolCallId": str() as call, "state": "output-available"}:
            return _output(call, part.get("output"), False, place)
        case {"toolCallId": str() as call, "errorText": str() as text}:
            return _output(call, text, True, place)
    raise Refused.at(place, "must have toolCallId, and errorText where the state is output-error")


def _form(part: Mapping[str, Any], place: str) -> dict[str, Item]:
    """Return the answer that the page has put to a question; none if it has put none."""
    match part:
        case {"id": str() as action, "data": {"answer": {"response": response, **more}}}:
            fields = {"type": "answer", "action_id": action, "response": response, "content": more.get("content")}
            with refusing_at(f"{place}/data/answer"):
                return {action: QuestionAnswer.model_validate(fields)}
        case {"data": {"answer": _}}:
            raise Refused.at(f"{place}/data/answer", "must have response: accept, decline or cancel")
    return {}


def _below(part: Mapping[str, Any], place: str) -> dict[str, Item]:
    """Return the answer that the page has put to a call of a run below; none if it has put none."""
    place = f"{place}/data/answer"
    match part:
        case {"id": str() as action, "data": {"answer": {"approved": bool() as approved, **more}}}:
            return {action: _decision(action, approved, more.get("reason"), place)}
        case {"id": str() as action, "data": {"answer": {"output": output, **more}}}:
            with refusing_at(place):
                failed = more.get("isError") is True
                return {action: ToolOutput(type="tool_output", call_id=action, output=output, is_error=failed)}
        case {"data": {"answer": {"response": _}}}:
            return _form(part, place.removesuffix("/data/answer"))
        case {"data": {"answer": _}}:
            raise Refused.at(place, "must have approved, true or false; or output; or response, of a question")
    return {}


def _decision(action: str, approved: bool, reason: Any, place: str) -> ApprovalDecision:
    if len(action) > _ID:
        raise Refused.at(f"{place}/id", f"must have at most {_ID} characters")
    if approved:
        return ApprovalDecision(type="approval", action_id=action, decision="approve")
    if not isinstance(reason, str | None) or len(reason or "") > _REASON:
        raise Refused.at(f"{place}/reason", f"must be a text of at most {_REASON} characters")
    return ApprovalDecision(type="approval", action_id=action, decision="deny", reason=reason or None)


def _output(call: str, output: Any, failed: bool, place: str) -> dict[str, Item]:
    # What stands behind "~" was added for the client: it tells calls of one id in several steps apart.
    call_id = call.partition("~")[0]
    if len(call_id) > _ID:
        raise Refused.at(f"{place}/toolCallId", f"must have at most {_ID} characters")
    return {call_id: ToolOutput(type="tool_output", call_id=call_id, output=output, is_error=failed)}
