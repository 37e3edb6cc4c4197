"""An agent as the tool of another one: what the model sees of it, and what a call says to it (ADR 0097)."""

from __future__ import annotations

from typing import Any, Final

from palaver.errors import ToolError
from palaver.schemas.actions import ClientTool
from palaver.schemas.first_words import first_words
from palaver.schemas.models import AgentSpec, Message, Subagent, ToolCall
from palaver.tools.schemas import fitting
from palaver.vocabulary.limits import count_exceeded, limit_of

from ..protocols import Offer

_PARAMETERS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "message": {
            "type": "string",
            "minLength": 1,
            "description": "What it is to do. It sees nothing else of this conversation.",
        }
    },
    "required": ["message"],
    "additionalProperties": False,
}
_DESCRIPTION: Final = 200
"""Characters of an agent's instructions that stand for its description."""


def offer_of(name: str, subagent: Subagent) -> Offer:
    """Return the tool that the agent is to a model, under that name."""
    return Offer(name, _description(subagent.agent), _PARAMETERS)


def _description(agent: AgentSpec) -> str:
    if agent.description:
        return agent.description
    words = first_words((Message(role="user", content=agent.instructions),), _DESCRIPTION, ())
    return f"Ask the agent {agent.name}. {words or ''}".strip()


def message_of(call: ToolCall) -> str:
    """Return what the call says to the agent.

    Raises:
        InvalidToolCall: the arguments do not fit.
        ToolError: it is longer than an input may be.
    """
    message = str(fitting(ClientTool(name=call.name, parameters=_PARAMETERS), call.arguments)["message"])
    if len(message) > limit_of("input_text"):
        count_exceeded("input_text")
        raise ToolError(f"the message has more than {limit_of('input_text')} characters: say less")
    return message
