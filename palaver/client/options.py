"""The keyword arguments of the clients' methods, declared once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias, TypedDict

from palaver.client.functions import ClientTools, ClientToolset
from palaver.schemas.actions import Approvals
from palaver.schemas.fields import REVEALED
from palaver.schemas.filters import RunFilter
from palaver.schemas.models import AgentSpec, Budget, CancelMode, OnConflict
from palaver.schemas.schedules import NewSchedule

Until: TypeAlias = Literal["terminal", "action"]
"""The state to wait for: the run's end; or its end, a pending action, or a pause."""


class AgentOptions(TypedDict, total=False):
    """The agent that answers: ``agent``, or ``model`` and the four that go with it."""

    agent: AgentSpec | Mapping[str, Any] | str | None
    """The whole agent, as a spec or as JSON; or the name of one on the server, such as ``support`` or
    ``support@7``."""
    model: str | None
    """``provider/name``."""
    instructions: str | None
    """The text that the model gets before all messages."""
    tools: Sequence[str]
    """Tools of the server that it may use, by name."""
    approvals: Approvals | Mapping[str, Any] | str | Sequence[str] | None
    """The calls that wait for an approval: ``"never"``, ``"risky"``, ``"always"``, names and globs, or a whole
    policy."""
    max_steps: int | None
    """Model calls that a run may make."""
    client_tools: ClientTools
    """Tools that run here: typed functions, or declarations. They go with a whole agent or a model."""


class SubmitOptions(AgentOptions, total=False):
    """All options of a run besides its input."""

    conversation_id: str | None
    """Go on with this conversation; a new one without it."""
    on_conflict: OnConflict | None
    """The action for a run whose conversation is busy."""
    start_after: datetime | None
    start_by: datetime | None
    """It expires if it has not begun by then."""
    deadline: datetime | None
    """It expires if it has not ended by then."""
    budget: Budget | Mapping[str, float] | None
    """The most that it may use: ``tokens``, ``cost_usd``, ``tool_calls``, ``seconds``."""
    priority: int | None
    """0 (first among the runs of its tenant) to 9, where steps have to wait for their turn; 5 by default."""
    metadata: Mapping[str, str] | None
    tags: Sequence[str]
    secrets: Mapping[str, str | None]
    """Secrets that the conversation has from now on, for tools, by name; None removes one."""
    idempotency_key: str | None
    """The key: submitting with the same one again makes no second run. A fresh one by default."""


class ConversationOptions(AgentOptions, total=False):
    """All options of a conversation when it begins."""

    id: str | None
    """A UUID, or an id that this server made: if there is a conversation of that id, it is that one."""
    title: str | None
    metadata: Mapping[str, str] | None
    tags: Sequence[str]
    secrets: Mapping[str, str | None]
    """For tools, by name."""


class ConversationChanges(AgentOptions, total=False):
    """Changes of a conversation from now on."""

    title: str | None
    metadata: Mapping[str, str]
    tags: Sequence[str]
    revision: int | None
    """Only if it still has this one."""


class BulkOptions(RunFilter, total=False):
    """A selection of runs, and the operation on them."""

    older_than: float | None
    """Seconds since they were submitted."""
    all: bool
    """Every run there is, in the place of a filter."""
    mode: CancelMode | None
    """The way they are cancelled."""
    reason: str | None
    """Why they are cancelled."""


class CapOptions(TypedDict, total=False):
    """Caps of a tenant; None takes one away."""

    weight: int | None
    """Its share of the turns where tenants take turns, 1 to 1,000."""
    max_in_flight: int | None
    """Steps that execute at the same time."""
    max_queued: int | None
    """Runs that have not begun."""
    requests_per_minute: int | None
    tokens_per_minute: int | None
    usd_per_day: float | None
    usd_per_month: float | None


def check(options: Mapping[str, Any], declared: type) -> None:
    """Raises TypeError for an option that ``declared`` does not name, as a call with a wrong keyword does."""
    known = getattr(declared, "__annotations__", {})
    for name in options.keys() - known.keys():
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise TypeError(f"there is no argument {name!r}{hint}")


def agent_object(options: AgentOptions, toolset: ClientToolset) -> Any:
    """The agent on the wire, from a spec or from the short form; None to use the conversation's own.

    Client tools go to either form: a spec keeps those that it declares itself.

    Raises:
        ValueError: both forms at once, a short form without a model, or client tools with a name.
    """
    if isinstance(tools := options.get("tools"), str):
        raise ValueError(f"tools is a list of names: tools=[{tools!r}]")
    agent, model = options.get("agent"), options.get("model")
    short_form = {
        "instructions": options.get("instructions"),
        "tools": list(options.get("tools") or ()) or None,
        "max_steps": options.get("max_steps"),
        "approvals": _approvals(options.get("approvals")),
    }
    details = {name: value for name, value in short_form.items() if value is not None}
    if agent is not None:
        if model is not None or details:
            raise ValueError("give either agent or model, instructions, tools, max_steps and approvals, not both")
        if isinstance(agent, str):
            if toolset.declarations:
                raise ValueError("an agent on the server declares its client_tools itself: give it by its name alone")
            return agent
        spec = wire(agent)
        own = spec.get("client_tools") or []
        names = {tool.get("name") for tool in own if isinstance(tool, Mapping)}
        more = [declaration for declaration in toolset.declarations if declaration.get("name") not in names]
        return {**spec, "client_tools": [*own, *more]} if more else spec
    if model is None:
        if details:
            raise ValueError(f"{', '.join(details)} given without a model")
        return None
    declared = {"client_tools": list(toolset.declarations)} if toolset.declarations else {}
    return {"model": model, **details, **declared}


def named_or_wire(agent: AgentSpec | Mapping[str, Any] | str | None) -> Any:
    """An agent on the wire, as a spec or by its name."""
    return agent if agent is None or isinstance(agent, str) else wire(agent)


class BatchOptions(TypedDict, total=False):
    """The options of a batch."""

    repeats: int
    scorer: AgentSpec | Mapping[str, Any] | str
    window: int
    priority: int
    budget: Budget | Mapping[str, float]
    tags: Sequence[str]
    name: str
    idempotency_key: str


def wire(body: AgentSpec | NewSchedule | Mapping[str, Any]) -> dict[str, Any]:
    """A spec as JSON."""
    if isinstance(body, Mapping):
        return dict(body)
    return body.model_dump(mode="json", exclude_unset=True, context=REVEALED)


def _approvals(approvals: Approvals | Mapping[str, Any] | str | Sequence[str] | None) -> Any:
    match approvals:
        case None:
            return None
        case Approvals():
            return approvals.model_dump(mode="json", exclude_unset=True)
        case Mapping():
            return dict(approvals)
        case str():
            return {"require": approvals}
        case _:
            return {"require": list(approvals)}
