"""Runs of agents in a test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Self

import orjson
from pydantic import BaseModel

from palaver.schemas.models import AgentSpec, Message, Submission
from palaver.vocabulary.names import did_you_mean
from workers.sources.containment import ToolAnswer

from .engine import Engine
from .functions import LocalFunctions
from .local_run import LocalRun
from .memory import Clock
from .model import ScriptedModel
from .stepped_loop import SteppedLoop

Function = Callable[..., Any]
"""A tool: a function, or one with ``@tool``."""

_MODEL: Final = "scripted/model"
_OF_AGENT: Final = frozenset(AgentSpec.model_fields)
_OF_RUN: Final = frozenset(Submission.model_fields) - _OF_AGENT - {"agent", "input"}


class PalaverRuns:
    """Runs agents to their end in this process, on a store of its own: the fixture ``palaver_runs``.

    In a program without pytest it is a context manager, which checks behind the block that the model was asked for
    its whole script.
    """

    def __init__(self) -> None:
        self.model = ScriptedModel()
        """The model of all agents."""
        self.clock = Clock()
        """The time of the store."""
        self.in_thread: Callable[[Callable[[], ToolAnswer]], Awaitable[ToolAnswer]] = asyncio.to_thread
        """The way in which `arun` calls tools that block. `run` calls them in the thread of the test."""
        self._loop = SteppedLoop()
        self._functions = LocalFunctions(self._elsewhere)
        self._engine: Engine | None = None
        self._agents: dict[str, AgentSpec] = {}
        """The agent of each conversation."""

    def run(
        self,
        input: str | Sequence[Message | Mapping[str, Any]],
        *,
        tools: Sequence[Function] = (),
        agent: AgentSpec | Mapping[str, Any] | None = None,
        by: str | None = None,
        raise_errors: bool = False,
        **fields: Any,
    ) -> LocalRun:
        """Submit a run, and return it once it has ended or waits for a person.

        Its ``agent`` has these ``tools`` behind those of its own list: functions, or names of earlier ones. ``fields``
        are those of an agent, such as ``instructions``, and those of a run, such as ``conversation_id`` and ``budget``.
        Without an ``agent`` they change that of the conversation, if there is one. ``by`` is the
        name of the key that submits it, where a second person has to approve. With ``raise_errors`` what a tool raises
        is raised here, unless it is a `ToolError`: those are for the model.

        Raises:
            Refused: the API would refuse it; says why.
            AssertionError: the model was asked beyond its script.
            RuntimeError: a loop runs in this thread: `arun` is for that.
        """
        return self._loop.complete(self._run(input, tools, agent, by, raise_errors, fields))

    async def arun(
        self,
        input: str | Sequence[Message | Mapping[str, Any]],
        *,
        tools: Sequence[Function] = (),
        agent: AgentSpec | Mapping[str, Any] | None = None,
        by: str | None = None,
        raise_errors: bool = False,
        **fields: Any,
    ) -> LocalRun:
        """The same on the loop of the test. Tools that may block are called by `in_thread`. Raises as `run`."""
        return await self._run(input, tools, agent, by, raise_errors, fields)

    async def _run(
        self,
        input: str | Sequence[Message | Mapping[str, Any]],
        tools: Sequence[Function],
        agent: AgentSpec | Mapping[str, Any] | None,
        by: str | None,
        raise_errors: bool,
        fields: Mapping[str, Any],
    ) -> LocalRun:
        spec, of_run = self._spec(tools, agent, fields)
        given = {"input": input, **of_run, **({} if spec is None else {"agent": spec})}
        # As JSON, so that it is read as the API reads it.
        submission = Submission.model_validate_json(orjson.dumps(given, default=_written))
        if self._engine is None:
            self._engine = Engine(self.clock, self.model, self._functions)
        self._engine.raise_errors = raise_errors
        run = LocalRun(self._engine, self._loop, self._functions.begun)
        await run.look(await self._engine.submit(submission, by))
        self._agents[run.conversation_id] = run.shown.agent
        return run

    def _spec(
        self, tools: Sequence[Function], agent: AgentSpec | Mapping[str, Any] | None, fields: Mapping[str, Any]
    ) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        """The agent, None for that of the conversation; and the fields of the run."""
        of_agent = {name: value for name, value in fields.items() if name in _OF_AGENT}
        of_run = {name: value for name, value in fields.items() if name in _OF_RUN}
        for name in fields.keys() - of_agent.keys() - of_run.keys():
            raise TypeError(f"neither an agent nor a run has a field {name!r}{did_you_mean(name, _OF_AGENT | _OF_RUN)}")
        if isinstance(agent, str):
            raise TypeError(f"no agents are kept in a test: give the agent itself, and not its name {agent!r}")
        names, conversation_id = self._functions.take(tools), of_run.get("conversation_id")
        if agent is None and conversation_id is not None:
            if not names and not of_agent:
                return None, of_run
            agent = self._agents.get(conversation_id)
        base = _written(agent) if isinstance(agent, AgentSpec) else agent or {}
        spec = {"model": _MODEL, **base, **of_agent}
        own = [each if isinstance(each, str) else self._functions.take([each])[0] for each in spec.get("tools", ())]
        spec["tools"] = [*dict.fromkeys([*own, *names])]
        return spec, of_run

    async def _elsewhere(self, function: Callable[[], ToolAnswer]) -> ToolAnswer:
        return await (self._loop.call if self._loop.turns else self.in_thread)(function)

    def close(self) -> None:
        """End what is left on the loop of `run`. On that of a test nothing is."""
        if self._engine is not None:
            self._loop.close(self._engine.close)
            self._engine.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        if kind is None:
            self.model.check_all_asked()


def _written(value: Any) -> Any:
    """Return a value as JSON has it, without what was not said."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True)
    raise TypeError(f"no JSON is made of a {type(value).__name__}")
