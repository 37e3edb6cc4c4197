"""Answers that the request brings itself: `[[raw {...}]]` in the last user message."""

from __future__ import annotations

from typing import Any, Literal

import orjson
from pydantic import ConfigDict, Field, ValidationError

from palaver.late import dataclass
from palaver.schemas.fields import DataModel

from .marks import written_object
from .requests import InvalidRequest

Then = Literal["close", "reset", "hang"]


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """An HTTP answer with this body, whatever a provider would send."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class RawBytes:
    """Bytes in place of an HTTP answer, and what happens to the connection then."""

    data: bytes
    then: Then


class _Directive(DataModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Answer(_Directive):
    status: int = Field(default=200, ge=200, le=599)
    headers: dict[str, str] = Field(default={})
    body: Any = ""


class _Wire(_Directive):
    wire: str
    then: Then = "close"


def marked(last_user: str) -> RawAnswer | RawBytes:
    """Read the user's `[[raw {...}]]`. Raises InvalidRequest if nothing, or nothing that can be sent."""
    value = written_object(last_user, "raw")
    if value is None:
        raise InvalidRequest("The model name says raw, but the last user message has no [[raw {...}]].", "messages")
    try:
        if "wire" in value:
            wire = _Wire.model_validate(value)
            return RawBytes(wire.wire.encode("latin-1"), wire.then)
        answer = _Answer.model_validate(value)
        body = answer.body.encode() if isinstance(answer.body, str) else orjson.dumps(answer.body)
        return RawAnswer(answer.status, answer.headers, body)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in error.errors())
        raise InvalidRequest(f"[[raw …]]: {wrong}", "messages") from None
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"[[raw …]]: {error}", "messages") from None
