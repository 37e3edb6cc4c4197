"""The agent of a submission, from a spec or from the short form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palaver.actions import Approvals
from palaver.client.functions import Offer
from palaver.models import AgentSpec


def agent_object(
    agent: AgentSpec | Mapping[str, Any] | None,
    *,
    model: str | None,
    instructions: str | None,
    tools: Sequence[str],
    max_steps: int | None,
    approvals: Approvals | Mapping[str, Any] | str | Sequence[str] | None,
    offer: Offer,
) -> Any:
    """The agent on the wire, from a spec or from the short form; None to use the conversation's own.

    Client tools go to either form: a spec keeps those that it declares itself.

    Raises:
        ValueError: both forms at once, or a short form without a model.
    """
    given = {
        "instructions": instructions,
        "tools": list(tools) or None,
        "max_steps": max_steps,
        "approvals": _approvals(approvals),
    }
    details = {name: value for name, value in given.items() if value is not None}
    if agent is not None:
        if model is not None or details:
            raise ValueError("give either agent or model, instructions, tools, max_steps and approvals, not both")
        spec = wire(agent)
        own = spec.get("client_tools") or []
        names = {each.get("name") for each in own if isinstance(each, Mapping)}
        more = [each for each in offer.declarations if each.get("name") not in names]
        return {**spec, "client_tools": [*own, *more]} if more else spec
    if model is None:
        if details:
            raise ValueError(f"{', '.join(details)} given without a model")
        return None
    declared = {"client_tools": list(offer.declarations)} if offer.declarations else {}
    return {"model": model, **details, **declared}


def wire(agent: AgentSpec | Mapping[str, Any]) -> dict[str, Any]:
    """A spec as JSON."""
    return agent.model_dump(mode="json", exclude_unset=True) if isinstance(agent, AgentSpec) else dict(agent)


def _approvals(given: Approvals | Mapping[str, Any] | str | Sequence[str] | None) -> Any:
    match given:
        case None:
            return None
        case Approvals():
            return given.model_dump(mode="json", exclude_unset=True)
        case Mapping():
            return dict(given)
        case str():
            return {"require": given}
        case _:
            return {"require": list(given)}
