"""What is made without a check is what pydantic makes of it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from palaver.schemas.models import Message, ToolCall
from palaver.schemas.unchecked import unchecked

_CALL = {"id": "c1", "name": "look", "arguments": "{"}


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (Message, {"content": "42", "role": "tool", "call_id": "c1", "is_error": True}),
        (Message, {"role": "assistant", "tool_calls": (ToolCall(**_CALL),)}),
        (Message, {"role": "user", "content": "hello", "of_tomorrow": 1}),
        (ToolCall, _CALL),
        (ToolCall, {"id": "c1", "name": "look"}),
    ],
)
def test_it_is_what_pydantic_constructs(model: type[BaseModel], values: dict[str, Any]) -> None:
    ours, theirs = unchecked(model, values), model.model_construct(**values)
    assert ours == theirs
    assert repr(ours) == repr(theirs)
    assert hash(ours) == hash(theirs)
    assert ours.model_fields_set == theirs.model_fields_set
    assert ours.model_dump_json() == theirs.model_dump_json()
    assert ours.model_dump_json(exclude_defaults=True) == theirs.model_dump_json(exclude_defaults=True)
    assert ours.model_dump_json(exclude_unset=True) == theirs.model_dump_json(exclude_unset=True)
    assert ours.model_copy(update={"name": "other"}) == theirs.model_copy(update={"name": "other"})


def test_no_two_share_what_one_of_them_has() -> None:
    one, other = unchecked(Message, {"role": "user"}), unchecked(Message, {"role": "tool", "content": "x"})
    assert (one.role, one.content, other.role, other.content) == ("user", "", "tool", "x")
