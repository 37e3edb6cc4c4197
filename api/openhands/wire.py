"""Bodies as clients send them, whose unknown fields are left out, and answers as they read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile
from types import MappingProxyType
from typing import Any, Final

import orjson
from pydantic import BaseModel, ConfigDict, RootModel, ValidationError, model_validator
from starlette.responses import Response

from palaver.errors import FieldError, Refused
from palaver.version import __version__

from ..answers import answer_json

_LONGEST_NAME: Final = 64
_NOWHERE: Final[Mapping[str, str]] = MappingProxyType({})


@contextmanager
def refusing(place: str = "", named: Mapping[str, str] = _NOWHERE) -> Iterator[None]:
    """Refuse a body around the making of a value of ours: each fault has its place in the body, where a field may have
    another name.

    Raises:
        Refused: everything that does not fit.
    """
    try:
        yield
    except ValidationError as error:
        misfits = error.errors(include_url=False, include_input=False, include_context=False)
        faults = [
            FieldError(place + _pointer(misfit["loc"], named), misfit["type"], _sentence(misfit["msg"]))
            for misfit in misfits
        ]
        raise Refused.of_faults(faults) from None


def _pointer(location: tuple[int | str, ...], named: Mapping[str, str]) -> str:
    first, *rest = map(str, location)
    # Names that clients have chosen end it, if they are long.
    names = [named.get(first, first), *takewhile(lambda name: len(name) <= _LONGEST_NAME, rest)]
    return "".join(f"/{name}" for name in names if name)


def _sentence(message: str) -> str:
    return message.replace("Input should be", "must be").replace("Value error, ", "")


class LenientModel(BaseModel):
    """An object whose unknown fields are ignored: docs/reference/openhands.md lists them."""

    model_config = ConfigDict(frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _leave_out_the_rest(cls, value: Any) -> Any:
        # Bodies are read with all unknown fields forbidden, whatever a model says.
        if not isinstance(value, dict):
            return value
        names = {field.alias or name for name, field in cls.model_fields.items()}
        return {name: field for name, field in value.items() if name in names}


class OpenHandsSuccess(BaseModel):
    """It is done."""

    success: bool = True


class ConversationInfo(RootModel[dict[str, Any]]):
    """A conversation as OpenHands' clients read it: docs/reference/openhands.md has the fields."""


class ConversationList(RootModel[list[ConversationInfo | None]]):
    """Several conversations."""


class Count(RootModel[int]):
    """A number."""


class OpenHandsServerInfo(BaseModel):
    """The server's name and version."""

    title: str = "Palaver"
    version: str = __version__


class OpenHandsHealth(BaseModel):
    """Well."""

    status: str = "ok"


class ConversationSearchPage(BaseModel):
    """A page of conversations, in order."""

    items: list[ConversationInfo]
    next_page_id: str | None
    """The id of the next page; null if there is none."""


class OpenHandsEvent(RootModel[dict[str, Any]]):
    """An event as OpenHands' clients read it, told apart by `kind`."""


class EventSearchPage(BaseModel):
    """A page of events, in order."""

    items: list[OpenHandsEvent]
    next_page_id: str | None
    """The first event of the next page; null if there is none."""


class FinalResponse(BaseModel):
    """The last answer of an agent."""

    response: str


class AgentAnswer(BaseModel):
    """The answer of an agent to a question."""

    response: str


class GeneratedTitle(BaseModel):
    """A title for a conversation."""

    title: str


def plain(value: Any, status: int = 200) -> Response:
    """Return an answer with any JSON."""
    return answer_json(orjson.dumps(value), status)


def done() -> Response:
    """Return the answer to a request that is done and has no result."""
    return plain({"success": True})
