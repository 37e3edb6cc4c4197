"""What can happen to a run of a conversation, drawn at random, and how it may end then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.vendor.pretty import RepresentationPrinter

from palaver.events import Event, StepStarted

TOLD = {
    "record": "",
    "record_idempotent": "",
    "calculator": "",
    "send": "",
    "flaky": "",
    "long_text": "",
    "fail": "tool_error",
    "leave": "tool_error",
    "unready": "tool_error",
    "overrun": "tool_timeout",
    "crash": "tool_interrupted",
    "crash_idempotent": "tool_interrupted",
    "no_such_tool": "invalid_tool_call",
}
"""What the model is told of a call that nothing interferes with: the error class, empty for a result."""

WELL = ("record", "record_idempotent", "calculator")
ALL = (*WELL, "fail", "flaky", "overrun", "crash", "unready", "leave")
FOR_LONG = '[[args {"seconds": 30}]]'


@dataclass(frozen=True)
class Moment:
    """After so many events of a type, as a watcher of the run sees them."""

    after: str
    """A type; `tool`: a call was begun; `any`."""
    count: int = 1

    def reached(self, seen: Sequence[Event]) -> bool:
        """Whether the newest event is the one."""
        return self._counts(seen[-1]) and sum(map(self._counts, seen)) == self.count

    def _counts(self, event: Event) -> bool:
        begun = isinstance(event, StepStarted) and "/" in event.step
        return self.after in ("any", event.type) or (self.after == "tool" and begun)


@dataclass(frozen=True)
class Scenario:
    """One run, what is done to it, and how it may end: stop reasons, `error:<class>` for a failure.

    A run whose cancel was acknowledged ends as cancelled, whatever else it may.
    """

    model: str
    ends: tuple[str, ...] = ("end_turn",)
    text: str = "go"
    tools: tuple[str, ...] = ()
    agent: Mapping[str, Any] | None = None
    budget: Mapping[str, int] | None = None
    start_after: float | None = None
    deadline: float | None = None
    """Seconds from the submission."""
    puts: tuple[tuple[Moment, Sequence[Mapping[str, Any]]], ...] = ()
    """Inputs of the run: at that moment, these items."""
    says: Moment | None = None
    """When the user says something in its conversation. It is waited for, as another run would be told that."""
    cancel: Moment | None = None
    kill: Moment | None = None
    """Of the model worker that had the run last, or of any."""
    window: float | None = None
    """The model's window, as a share of what the conversation takes; after a message that makes it long."""
    shows: str = "run.finished"
    """An event that it has."""
    told: Mapping[str, str] | None = None
    """Of the calls of which the model is told otherwise than `TOLD` says."""
    provider: str = "fake"
    """Who is asked, in its protocol."""
    waited_for: bool = True
    """If not, the next user message comes while this run is going."""
    ahead: str = ""
    """What is done in the conversation before it, when no run is going: one of `AHEAD`."""
    share: float = 1.0
    """How much of the log `ahead` leaves."""

    def __repr__(self) -> str:
        said = (
            (each.name, getattr(self, each.name)) for each in fields(self) if getattr(self, each.name) != each.default
        )
        return f"Happening({', '.join(f'{name}={repr(value)[:200]}' for name, value in said)})"

    def _repr_pretty_(self, printer: RepresentationPrinter, cycle: bool) -> None:
        """For Hypothesis, which would name every field."""
        printer.text(repr(self))


def calls_tools(draw: st.DrawFn) -> Scenario:
    return _turns(draw, WELL)


def calls_tools_of_all_kinds(draw: st.DrawFn) -> Scenario:
    """Parallel calls with mixed outcomes: results, exceptions, retries, timeouts, a process that is gone."""
    return _turns(draw, ALL)


def _turns(draw: st.DrawFn, tools: Sequence[str]) -> Scenario:
    # Two turns at most: a third that fails like them is told to the model, which is another scenario.
    calls = draw(st.lists(st.integers(1, 4), min_size=1, max_size=2))
    chosen = draw(st.lists(st.sampled_from(tools), min_size=1, max_size=4, unique=True))
    return Scenario(f"steps-{'-'.join(map(str, calls))}+use-each", tools=tuple(chosen))


def asks_for_what_does_not_fit(draw: st.DrawFn) -> Scenario:
    """A tool that the agent has not, arguments that are no JSON, arguments that the tool does not take."""
    fault, text = draw(
        st.sampled_from([("unknowntool-1", "go"), ("badargs-1", "go"), ("", '[[args {"seconds": -1}]]')])
    )
    model = f"parallel-{draw(st.integers(1, 3))}{fault and '+' + fault}"
    return Scenario(model, text=text, tools=("record",), told={"record": "invalid_tool_call"})


def waits_for_a_decision(draw: st.DrawFn) -> Scenario:
    """Of its parallel calls every other one needs an approval: denied, denied so that the run stops there, given, or
    undecided when it is cancelled."""
    calls = draw(st.integers(1, 4))
    asked = Moment("action.required", (calls + 1) // 2)
    model, tools = f"parallel-{calls}+use-each", ("send", "record")
    denied = {"type": "approval", "action_id": "all", "decision": "deny"}
    match draw(st.sampled_from(["deny", "stop", "approve", "cancel"])):
        case "deny":
            return Scenario(model, tools=tools, puts=((asked, (denied,)),), told={"send": "tool_denied"})
        case "stop":
            puts = ((asked, (denied, {"type": "stop"})),)
            return Scenario(model, ("cancelled",), tools=tools, puts=puts, told={"send": "tool_denied"})
        case "approve":
            item = {"type": "approval", "action_id": "all", "decision": "approve"}
            return Scenario(model, tools=tools, puts=((asked, (item,)),))
        case _:
            return Scenario(model, (), tools=tools, cancel=asked)


def is_steered(draw: st.DrawFn) -> Scenario:
    """The user's words at any moment, which to the model begin everything anew."""
    words = (Moment("any", draw(st.integers(1, 15))), ({"type": "message", "content": "rather this"},))
    return replace(_turns(draw, ALL), puts=(words,))


def has_something_said_beside_it(draw: st.DrawFn) -> Scenario:
    """Words in its conversation once its turn has come: it is told them, or they are what the next one finds."""
    return replace(_turns(draw, ALL), says=Moment("step.started", draw(st.integers(1, 6))))


def is_paused(draw: st.DrawFn) -> Scenario:
    """At any moment, and resumed once it is."""
    pause = (Moment("any", draw(st.integers(1, 15))), ({"type": "pause", "now": draw(st.booleans())},))
    return replace(_turns(draw, ALL), puts=(pause, (Moment("run.paused"), ({"type": "resume"},))))


def is_cancelled_while_it_streams(draw: st.DrawFn) -> Scenario:
    return Scenario("say-400+rate-50", (), cancel=Moment("message.delta", draw(st.integers(1, 5))))


def is_cancelled_while_tools_run(draw: st.DrawFn) -> Scenario:
    """Calls that have begun are interrupted; those for which no child was free are denied."""
    calls = draw(st.integers(1, 6))
    cancel = Moment("tool", draw(st.integers(1, min(calls, 2))))
    return Scenario(f"parallel-{calls}", (), FOR_LONG, tools=("record",), cancel=cancel)


def is_cancelled_while_it_backs_off(draw: st.DrawFn) -> Scenario:
    if draw(st.booleans()):
        return Scenario("tool-1", tools=("unready",), cancel=Moment("run.retrying"))
    rules = {"provider_error": {"first": 60, "max_delay": 60, "jitter": "none"}}
    return Scenario(
        "tool-1+500@2", (), tools=("record",), agent={"retry": {"rules": rules}}, cancel=Moment("run.retrying")
    )


def is_cancelled_before_it_starts(draw: st.DrawFn) -> Scenario:
    return Scenario("echo", (), start_after=60, cancel=Moment("any"))


def is_cancelled_at_any_moment(draw: st.DrawFn) -> Scenario:
    turns = _turns(draw, ALL)
    return replace(turns, model=f"{turns.model}+rate-100", cancel=Moment("any", draw(st.integers(1, 20))))


def outgrows_the_window(draw: st.DrawFn) -> Scenario:
    """The condenser off, on, ahead of the refusal, in the middle of a turn, and where it cannot help."""
    condensed = "conversation.condensed"
    # Condensed in the middle of its turn, the question looks new to the model, which calls the tool again.
    again = Scenario(
        "tool-1", ("end_turn", "max_steps"), tools=("long_text",), agent={"max_steps": 3}, window=1.02, shows=condensed
    )
    cases = [
        Scenario("say-5", window=0.75, shows=condensed),
        Scenario("say-5", ("error:context_window",), agent={"condense": False}, window=0.75),
        Scenario("say-5", agent={"condense_at": 1000}, window=2, shows=condensed),
        Scenario("say-5", ("error:context_window",), window=0.01),
        again,
    ]
    return draw(st.sampled_from(cases))


def meets_a_limit(draw: st.DrawFn) -> Scenario:
    """In the middle of a turn: of steps, of calls, of tokens, of the answer's length, of time."""
    plan = f"tool-5+parallel-{draw(st.integers(1, 4))}-3"
    cases = [
        Scenario(plan, ("max_steps",), tools=("record",), agent={"max_steps": draw(st.integers(1, 6))}),
        Scenario(plan, ("budget",), tools=("record",), budget={"tool_calls": draw(st.integers(1, 5))}),
        Scenario(plan, ("budget",), tools=("record",), budget={"tokens": 1}),
        Scenario("tool-1+say-40", ("max_tokens",), tools=("record",), agent={"max_output_tokens": 16}),
        Scenario("parallel-3", ("deadline",), FOR_LONG, tools=("record",), deadline=0.7),
        Scenario("tool-1+say-200+rate-50", ("deadline",), tools=("record",), deadline=0.7),
    ]
    return draw(st.sampled_from(cases))


def is_failed_by_the_provider(draw: st.DrawFn) -> Scenario:
    """At one of two model calls: until the policy gives up, at once, or so that another attempt mends it."""
    rule = {"first": 0.01, "attempts": 3}
    faults = {
        "500": "error:provider_error",
        "cut": "error:connection",
        "401": "error:authentication",
        "filter": "content_filter",
        "500-2": "end_turn",
        "cut-2-2": "end_turn",
        "errorchunk-1-3": "end_turn",
        "badjson-1": "end_turn",
    }
    fault = draw(st.sampled_from(sorted(faults)))
    return Scenario(
        f"tool-1+say-10+{fault}@{draw(st.integers(1, 2))}",
        (faults[fault],),
        tools=("record",),
        agent={"retry": {"rules": {"provider_error": rule, "connection": rule}}},
        shows="run.retrying" if fault not in ("401", "filter") else "run.finished",
    )


def repeats_itself(draw: st.DrawFn) -> Scenario:
    return Scenario("tool-5", ("stuck",), tools=(draw(st.sampled_from(["fail", "leave"])),))


def ends_child_after_child(draw: st.DrawFn) -> Scenario:
    """A call that may be started again, and takes its process along each time."""
    return Scenario("tool-1", ("error:worker_lost",), tools=("crash_idempotent",), shows="step.lost")


def loses_its_model_worker(draw: st.DrawFn) -> Scenario:
    return Scenario("tool-1+say-40+rate-40", tools=("record",), kill=Moment("any", draw(st.integers(1, 15))))


KINDS: Sequence[Callable[[st.DrawFn], Scenario]] = (
    calls_tools,
    calls_tools_of_all_kinds,
    asks_for_what_does_not_fit,
    waits_for_a_decision,
    is_steered,
    has_something_said_beside_it,
    is_paused,
    is_cancelled_while_it_streams,
    is_cancelled_while_tools_run,
    is_cancelled_while_it_backs_off,
    is_cancelled_before_it_starts,
    is_cancelled_at_any_moment,
    outgrows_the_window,
    meets_a_limit,
    is_failed_by_the_provider,
    repeats_itself,
    ends_child_after_child,
)

AHEAD = ("append", "withdraw", "condense", "fork")
"""What can happen to a conversation without a run of it, or by one that says nothing."""

Sequences = tuple[tuple[Scenario, ...], ...]

SPOKEN = (("fake",), ("claude",), ("responding",), ("fake", "claude", "responding"))
"""Who the runs of a conversation ask: a provider of one protocol, or now this and now that one."""


@st.composite
def sequences(draw: st.DrawFn, *, conversations: int, longest: int = 8) -> Sequences:
    """What happens to some conversations at the same time, and to each one after the other.

    One drawing in four ends a model worker, and no more than one: a step that loses three fails, and rightly so.
    """
    kinds = st.lists(st.tuples(st.sampled_from(KINDS), st.booleans()), min_size=1, max_size=longest)
    drawn = [[_placed(draw, kind(draw), hurry) for kind, hurry in draw(kinds)] for _ in range(conversations)]
    if draw(st.integers(0, 3)) == 3:
        unlucky = draw(st.sampled_from(drawn))
        unlucky[draw(st.integers(0, len(unlucky) - 1))] = loses_its_model_worker(draw)
    return tuple(tuple(_spoken(draw, each)) for each in drawn)


def _placed(draw: st.DrawFn, scenario: Scenario, hurry: bool) -> Scenario:
    """With what happens around it: one in four has something happen ahead of it."""
    ahead = draw(st.sampled_from((*AHEAD, *("",) * 3 * len(AHEAD))))
    share, waited_for = draw(st.sampled_from((0.0, 0.3, 0.7, 1.0))), not hurry or scenario.says is not None
    return replace(scenario, waited_for=waited_for, ahead=ahead, share=share)


def _spoken(draw: st.DrawFn, sequence: Sequence[Scenario]) -> Iterator[Scenario]:
    """Each in a protocol; a model that says what it thinks wants it back."""
    providers = draw(st.sampled_from(SPOKEN))
    for scenario in sequence:
        provider = draw(st.sampled_from(providers))
        model = scenario.model if provider == "fake" else f"{scenario.model}+reasoning"
        yield replace(scenario, provider=provider, model=model)
