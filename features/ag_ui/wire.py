"""Requests of AG-UI. Of the messages those at the end are read: the server has the others."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple

import orjson
from pydantic import Field, StringConstraints

from api.kit.lenient import LenientModel, refusing, refusing_at
from palaver.errors import Refused
from palaver.schemas.actions import ApprovalDecision, ClientTool, Item, QuestionAnswer, ToolOutput
from palaver.schemas.content import FilePart, ImagePart, Part, TextPart
from palaver.schemas.fields import AgentReference
from palaver.schemas.models import Message
from palaver.vocabulary.limits import KIB, limit_of

from .dialect import ThreadId

_ID: Final = 200
_REASON: Final = limit_of("deny_reason")
_MOST: Final = limit_of("run_items")
Text = Annotated[str, StringConstraints(max_length=16 * KIB)]


class AgTool(LenientModel):
    """A tool that the client runs."""

    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None


class AgContext(LenientModel):
    """Something that the page says beside the words of the user."""

    description: Text = ""
    value: Text


class AgAnswer(LenientModel):
    """An answer to an interrupt."""

    interruptId: Annotated[str, StringConstraints(max_length=_ID)]
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class ForwardedProps(LenientModel):
    """The forwarded properties that this server reads."""

    agent: AgentReference | None = Field(default=None, description="The agent on the server, where no path names it.")


class RunAgentInput(LenientModel):
    """The body of a run of AG-UI. Other fields are not read; a `state` that is not empty is refused."""

    threadId: ThreadId
    runId: Annotated[str, StringConstraints(pattern=r"^[!-~]{1,128}$")] = Field(
        description="The client's name for this run. The same again starts nothing more, and follows the same run."
    )
    messages: tuple[dict[str, Any], ...] = Field(
        default=(), description="The messages of the thread. Only those behind the last answer are read."
    )
    tools: tuple[AgTool, ...] | None = Field(default=None, max_length=limit_of("agent_tools"))
    context: tuple[AgContext, ...] | None = Field(default=None, max_length=32)
    state: Any = None
    forwardedProps: ForwardedProps | None = None
    resume: tuple[AgAnswer, ...] | None = Field(default=None, max_length=_MOST)


class News(NamedTuple):
    """The part of a request that the server does not have yet."""

    answers: Mapping[str, Mapping[str, Item]]
    """By the run, and the id of the action or the call."""
    said: tuple[Part, ...]
    """The newest words of the user, as parts of a message; none if there are none."""
    resumed: Mapping[str, AgAnswer]
    """The entries of ``resume``, by the id of the action."""
    name: str | None = None
    """The name of these words: the same for a message with the same id that says the same. None without an id."""


def news_in(body: RunAgentInput) -> News:
    """Return what a request brings.

    Raises:
        Refused: something of it cannot be taken.
    """
    if body.state not in (None, {}, [], ""):
        raise Refused.at(
            "/state", "is not shared with agents here: leave it out, and say what they are to know in context"
        )
    answers: dict[str, dict[str, Item]] = {}
    resumed: dict[str, AgAnswer] = {}
    for at, entry in enumerate(body.resume or ()):
        run_id, _, action = entry.interruptId.partition(":")
        with refusing_at(f"/resume/{at}"):
            answers.setdefault(run_id, {})[action] = _resumed(entry, action, f"/resume/{at}")
        resumed[action] = entry
    behind = _behind_the_last_answer(body.messages)
    newest = None
    for at in range(behind, len(body.messages)):
        message, place = body.messages[at], f"/messages/{at}"
        match message.get("role"):
            case "user":
                newest = at
            case "tool":
                run_id, item = _output(message, place)
                answers.setdefault(run_id, {})[item.call_id] = item
            case "reasoning" | "activity":
                continue
            case _:
                raise Refused.at(f"{place}/role", "must be user or tool: instructions are the agent's own")
    # Those before it were sent by requests of their own, to runs that said nothing.
    said = [] if newest is None else _said(body.messages[newest], f"/messages/{newest}")
    name = None if newest is None else _name_of(body.messages[newest].get("id"), said)
    if said and body.context:
        text = "\n".join(f"{each.description}: {each.value}" for each in body.context)
        said.insert(0, TextPart(type="text", text=text))
    return News(answers, tuple(said), resumed, name)


def user_message(said: Sequence[Part]) -> Message:
    """Return the message of the user.

    Raises:
        Refused: the parts do not go together.
    """
    with refusing_at("/messages"):
        return Message(role="user", content=tuple(said))


def client_tools_in(body: RunAgentInput) -> tuple[ClientTool, ...]:
    """Return the tools of the client.

    Raises:
        Refused: one of them can be none.
    """
    made = []
    for at, tool in enumerate(body.tools or ()):
        fields = {"name": tool.name, "description": tool.description}
        with refusing(f"/tools/{at}"):
            made.append(
                ClientTool.model_validate(fields | ({"parameters": tool.parameters} if tool.parameters else {}))
            )
    return tuple(made)


def _behind_the_last_answer(messages: Sequence[Mapping[str, Any]]) -> int:
    for at in range(len(messages), 0, -1):
        if messages[at - 1].get("role") in ("assistant", "system", "developer"):
            return at
    return 0


def _resumed(entry: AgAnswer, action: str, place: str) -> Item:
    """Return the answer to an interrupt. Of a call of a client's tool, the payload has an output."""
    payload = entry.payload
    if entry.status == "cancelled":
        return ApprovalDecision(type="approval", action_id=action, decision="deny", reason="It was put aside.")
    match payload:
        case bool() | {"approved": bool()}:
            return _decision(action, payload if isinstance(payload, dict) else {"approved": payload}, place)
        case {"output": output}:
            return ToolOutput(
                type="tool_output", call_id=action, output=output, is_error=payload.get("isError") is True
            )
        case dict() | None:
            return answer_to_question(entry, action)
    raise Refused.at(
        f"{place}/payload", "must be an object: with approved, true or false; with output; or a form, filled in"
    )


def answer_to_question(entry: AgAnswer, action: str) -> QuestionAnswer:
    """Return the same of a question: the payload is the form, whatever its fields are called."""
    if entry.status == "cancelled":
        return QuestionAnswer(type="answer", action_id=action, response="cancel")
    content = entry.payload if isinstance(entry.payload, dict) else None
    return QuestionAnswer(type="answer", action_id=action, response="accept", content=content)


def _decision(action: str, payload: Mapping[str, Any], place: str) -> ApprovalDecision:
    reason, arguments = payload.get("reason"), payload.get("arguments")
    if not isinstance(reason, str | None) or len(reason or "") > _REASON:
        raise Refused.at(f"{place}/payload/reason", f"must be a text of at most {_REASON} characters")
    if not isinstance(arguments, dict | None):
        raise Refused.at(f"{place}/payload/arguments", "must be an object")
    if not payload["approved"]:
        return ApprovalDecision(type="approval", action_id=action, decision="deny", reason=reason or None)
    if arguments is not None:
        return ApprovalDecision(type="approval", action_id=action, decision="edit", arguments=arguments)
    return ApprovalDecision(type="approval", action_id=action, decision="approve")


def _output(message: Mapping[str, Any], place: str) -> tuple[str, ToolOutput]:
    """Return the run and the output of a call. The results of the server's own tools are among them."""
    name, content, error = message.get("toolCallId"), message.get("content", ""), message.get("error")
    run_id, _, rest = name.partition(":") if isinstance(name, str) else ("", "", "")
    call_id = rest.partition(":")[2]
    if not call_id or len(call_id) > _ID:
        raise Refused.at(f"{place}/toolCallId", "is not the id of a call of this thread")
    if isinstance(content, list):
        content = _texts(content, f"{place}/content")
    if not isinstance(content, str):
        raise Refused.at(f"{place}/content", "must be a text, or parts with text")
    if isinstance(error, str) and error:
        return run_id, ToolOutput(type="tool_output", call_id=call_id, output=error, is_error=True)
    return run_id, ToolOutput(type="tool_output", call_id=call_id, output=content)


def _texts(parts: Sequence[Any], place: str) -> str:
    for at, part in enumerate(parts):
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise Refused.at(f"{place}/{at}", "must be a text: nothing else of a client's tool is sent to models")
    return "".join(part["text"] for part in parts)


def _name_of(message_id: Any, said: Sequence[Part]) -> str | None:
    if not isinstance(message_id, str) or not message_id:
        return None
    # Some clients count their messages anew: with other words it is another message.
    words = [part.model_dump(mode="json") for part in said]
    return hashlib.sha256(orjson.dumps([message_id, words])).hexdigest()


def _said(message: Mapping[str, Any], place: str) -> list[Part]:
    match message.get("content"):
        case str() as text:
            return [TextPart(type="text", text=text)]
        case list() as parts:
            return [_part(part, f"{place}/content/{at}") for at, part in enumerate(parts)]
    raise Refused.at(f"{place}/content", "must be a text, or a list of parts")


def _part(part: Any, place: str) -> Part:
    match part:
        case {"type": "text", "text": str() as text}:
            return TextPart(type="text", text=text)
        case {"type": "image" | "document" as kind, "source": dict() as source}:
            with refusing_at(f"{place}/source"):
                url = _url(source, f"{place}/source")
                return ImagePart(type="image", url=url) if kind == "image" else FilePart(type="file", url=url)
    raise Refused.at(place, "must be a text, an image or a document: nothing else of a user is sent to models")


def _url(source: Mapping[str, Any], place: str) -> str:
    match source:
        case {"type": "url", "value": str() as url}:
            return url
        case {"type": "data", "value": str() as data, "mimeType": str() as media_type}:
            return f"data:{media_type};base64,{data}"
    raise Refused.at(place, "must be a url, or data with a mimeType")
