"""What a tool answered, as the model is told of it."""

from __future__ import annotations

import pytest

from palaver.errors import ToolError
from palaver.models import ToolCall
from workers.toolbox import answer

CALL = ToolCall(id="call_1", name="look_up", arguments='{"city": "Ulm"}')


class Silent:
    """Has no text."""

    def __str__(self) -> str:
        raise RuntimeError("nothing to say")


def circular() -> list[object]:
    loop: list[object] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize("result", [circular(), Silent(), {"a": Silent()}])
def test_a_result_that_cannot_be_told_is_an_error_of_the_tool(result: object) -> None:
    with pytest.raises(ToolError, match="look_up answered with"):
        answer(CALL, result)


def test_edited_arguments_are_told_with_the_result() -> None:
    message = answer(CALL, {"sun": True}, edited=True).message
    assert message.content == '[The user changed the arguments of this call to {"city": "Ulm"}]\n{"sun": true}'
    assert (message.call_id, message.name, message.is_error) == ("call_1", "look_up", False)
