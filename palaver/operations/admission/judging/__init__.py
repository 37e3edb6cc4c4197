"""Station 3: a request is judged by what was looked up.

Each rule yields faults; one answer has all of a request. An agent below another one is judged by the same rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import SecretStr

from palaver.errors import FieldError
from palaver.operations.admission.faults import Fault
from palaver.operations.admission.judging.agents import (
    kept_faults,
    ordered_faults,
    part_faults,
    price_faults,
    secret_faults,
    tree_faults,
)
from palaver.operations.admission.judging.history import history_faults, input_faults, role_faults, said_faults
from palaver.operations.admission.judging.times import time_faults
from palaver.operations.admission.lookup import Known
from palaver.operations.admission.tree import AgentModels
from palaver.schemas.models import AgentSpec, Message, Retry, Submission

__all__ = [
    "conversation_faults",
    "input_faults",
    "kept_agent_faults",
    "message_faults",
    "ordered_faults",
    "retry_faults",
    "secret_faults",
    "submission_faults",
]


def submission_faults(body: Submission, known: Known) -> Iterator[Fault]:
    """Yield the faults of a new run."""
    models = known.models
    own, below = tree_faults(known, body.budget)
    yield from own
    if known.tree is None and body.conversation_id is None:
        yield FieldError("/agent", "no_agent", "is required when there is no conversation_id")
    yield from secret_faults(body.secrets, "/secrets", seals=known.seals)
    yield from part_faults(body.input, models)
    yield from price_faults(body.budget, models, known.owner)
    yield from history_faults(body)
    yield from time_faults(body)
    yield from below


def retry_faults(body: Retry, known: Known) -> Iterator[Fault]:
    """Yield the faults of a retry or a fork of a run."""
    own, below = tree_faults(known, body.budget)
    yield from own
    yield from price_faults(body.budget, known.models, known.owner)
    if body.input is not None:
        yield from input_faults(body.input)
    yield from time_faults(body)
    yield from below


def conversation_faults(secrets: Mapping[str, SecretStr | None] | None, known: Known) -> Iterator[Fault]:
    """Yield the faults of the agent and the secrets of a conversation."""
    own, below = tree_faults(known, None)
    yield from own
    yield from secret_faults(secrets, "/secrets", seals=known.seals)
    yield from below


def kept_agent_faults(name: str, agent: AgentSpec, known: Known) -> Iterator[Fault]:
    """Yield the faults of an agent that is to be kept on the server under that name."""
    yield from kept_faults(name, agent)
    own, below = tree_faults(known, None)
    yield from own
    yield from below


def message_faults(input: str | Sequence[Message], models: AgentModels, *, turns: bool) -> Iterator[Fault]:
    """Yield the faults of the user's messages, or of whole ``turns``, for a conversation with these models."""
    yield from said_faults(input)
    if not turns:
        yield from role_faults(input, "must be user: these are words of the user's")
    yield from part_faults(input, models)
