"""The state of a run in words: its steps, what it waits for and how to answer, workers that cannot take it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from palaver.cli.text import clock, moment, one_line, seconds, visible
from palaver.client.errors import ClientError
from palaver.schemas.actions import ActionType, PendingAction, PendingBelow
from palaver.schemas.current_steps import CurrentStep
from palaver.schemas.models import Run
from palaver.vocabulary.addresses import host_and_port
from palaver.vocabulary.lifecycle import StepState, WaitReason
from palaver.vocabulary.step_kinds import KINDS, MODEL

_SILENT: Final = 10.0
"""Seconds without more of an answer after which that is said; leases are renewed, and this is told, every 5."""
_LONG: Final = 2.0
"""Seconds that a step may wait for a worker before anybody looks why."""
WAITS: Final[Mapping[WaitReason, str]] = {
    WaitReason.BACKOFF: "backoff",
    WaitReason.PROVIDER_COOLDOWN: "provider cooldown",
    WaitReason.SERVICE_COOLDOWN: "service of a tool",
    WaitReason.NO_WORKER: "no worker",
    WaitReason.CONVERSATION_BUSY: "conversation busy",
    WaitReason.SCHEDULED: "scheduled",
    WaitReason.TENANT_LIMIT: "limit of the tenant",
    WaitReason.APPROVAL: "approval",
    WaitReason.CLIENT_TOOL: "client tool",
    WaitReason.QUESTION: "answer to a question",
    WaitReason.REMOTE_TASK: "task of a server",
    WaitReason.AGENT_RUN: "run of an agent",
    WaitReason.STORE: "store",
}
"""Words for each reason for which a run is not worked on."""
_NO_ROOM: Final[Mapping[str, str]] = {
    "cooldown": "the provider asked for fewer requests and is left alone",
    "max_in_flight": "as many calls as the provider may have are under way",
    "requests_per_minute": "the provider's requests of this minute are used up",
    "tokens_per_minute": "the provider's tokens of this minute are used up",
    "outage": "calls fail one after the other, and one at a time tries again",
}
"""Why a provider has no room for a call, by the code of ``run.waiting``."""
_NOT_WRITTEN: Final[Mapping[str, str]] = {
    "memory": "Redis is out of memory",
    "disk": "Redis cannot write to its disk",
    "replica": "this Redis is a replica",
    "replicas": "Redis has too few replicas",
}
"""Why the store takes no writes, likewise."""
_QUEUES: Final = {kind.name: kind.queue for kind in KINDS}
"""Of each kind: older servers do not say in which queue a step is."""
_NO_SERVICE: Final[Mapping[str, str]] = {
    "cooldown": "it asked for fewer requests and is left alone",
    "max_in_flight": "as many calls as it may have are under way",
    "requests_per_minute": "its calls of this minute are used up",
    "outage": _NO_ROOM["outage"],
}
"""Why the service of a tool has no room for a call."""
_CAPS: Final[Mapping[str, str]] = {
    "max_in_flight": "as many steps of the tenant execute as may",
    "usd_per_day": "the tenant's money of this day is spent, or set aside for calls under way",
    "usd_per_month": "the tenant's money of this month is spent, or set aside for calls under way",
    "requests_per_minute": "the tenant's requests of this minute are used up",
    "tokens_per_minute": "the tenant's tokens of this minute are used up",
}
"""The caps that a tenant may have reached, by the code of ``run.waiting``."""


def doing(run: Run) -> str:
    """Describe what ``run`` is busy with: the step that a worker has for longest, and how many more there are."""
    if not run.current_steps:
        return ""
    more = run.current_step_count - 1
    return f"{_step_text(run.current_steps[0])}{f' (and {more} more)' if more else ''}"


def doing_lines(run: Run) -> Iterator[str]:
    """A line for each open step, and how many are left out."""
    yield from map(_step_text, run.current_steps)
    if left := run.current_step_count - len(run.current_steps):
        yield f"… and {left} more"


def _step_text(step: CurrentStep) -> str:
    """``calling fake/hang for 12 s (attempt 3 of 5, last: timeout first_token_timeout); this attempt ends in 48 s at
    the latest``"""
    name, now = one_line(step.name), datetime.now(UTC)
    since = "" if step.since is None else f" for {_after(step.since, now)}"
    match step.state:
        case StepState.LEASED:
            what = f"{'calling' if step.kind == 'model' else 'running'} {name}{since}"
        case StepState.READY:
            what = f"{name} waits for a worker{since}"
        case StepState.LATER:
            again = "" if step.again_at is None else f" until {clock(step.again_at)}"
            what = f"{name} waits{again}"
        case StepState.AWAITING:
            what = f"{name} waits for an answer{since}"
        case _:
            what = f"{name} is paused{since}"
    facts = "; ".join(filter(None, (_came(step, now), _ends(step, now))))
    return f"{what}{_attempt(step)}{f'; {facts}' if facts else ''}"


def _attempt(step: CurrentStep) -> str:
    failed = step.last_failure
    if step.attempt == 1 and failed is None:
        return ""
    of = "" if step.max_attempts is None else f" of {step.max_attempts}"
    # Some codes are the class once more.
    named = dict.fromkeys((one_line(failed.error_class), one_line(failed.code))) if failed else ()
    last = f", last: {' '.join(named)}" if named else ""
    return f" (attempt {step.attempt}{of}{last})"


def _came(step: CurrentStep, now: datetime) -> str:
    if step.progress is None:
        return ""
    if not step.progress.bytes:
        return "nothing has come yet"
    came = f"{step.progress.bytes:,} bytes and {step.progress.characters:,} characters of text have come"
    if (now - step.progress.at).total_seconds() > _SILENT:
        came += f", the last {_after(step.progress.at, now)} ago"
    return came


def _ends(step: CurrentStep, now: datetime) -> str:
    if step.gives_up_at is None:
        return ""
    # What becomes of the step then, its policy says: there may be further attempts.
    what = "this attempt ends" if step.state is StepState.LEASED else "given up"
    return f"{what} in {_after(now, step.gives_up_at)} at the latest"


def _after(begin: datetime, end: datetime) -> str:
    return seconds(round(max(0.0, (end - begin).total_seconds())))


def call_text(action: PendingAction) -> str:
    """The call, ``send {"to": "bob"}``: all of it, because a person decides on it."""
    return visible(f"{action.tool} {action.arguments}")


def awaited(kind: object) -> str:
    """Name what an action of this type waits for."""
    named = {"approval": "an approval", "question": "the answer to a question"}
    return named.get(str(kind), "an output of the client")


def answer_commands(run_id: str, action: PendingAction) -> tuple[str, ...]:
    """Return the commands that answer an action."""
    about = f"{one_line(run_id)} {one_line(action.id)}"
    if action.type == "approval":
        return f"palaver approve {about}", f"palaver deny {about} --reason TEXT"
    if action.type == "question":
        form = "" if action.question is None or action.question.form is None else " JSON"
        return f"palaver answer {about}{form}", f"palaver answer {about} --decline"
    return (f"palaver answer {about} OUTPUT",)


def question_lines(action: PendingAction) -> Iterator[str]:
    """The question that an action is, if it is one: who asks, and for what. It is the server's word, not ours."""
    question = action.question
    if question is None:
        return
    yield f"  {one_line(question.asker)} asks: {one_line(question.message, 1_000)}"
    if question.url is not None:
        yield f"  at {one_line(host_and_port(question.url)[0])}: {one_line(question.url, 2_100)}"
    for name, field in ((question.form or {}).get("properties") or {}).items():
        about = field.get("title") or field.get("description") or ""
        yield "  " + one_line(f"{name} ({field.get('type')}) {about}", 300)


def action_lines(run_id: str, actions: Sequence[PendingAction]) -> Iterator[str]:
    """Each action with its commands, one to a line."""
    for action in actions:
        whose = " of a second person" if action.second_person else ""
        where = f" in {' > '.join(map(one_line, action.path))}" if isinstance(action, PendingBelow) else ""
        yield f"{call_text(action)}{where} waits for {awaited(action.type)}{whose} until {moment(action.expires_at)}"
        yield from question_lines(action)
        for command in answer_commands(run_id, action):
            yield f"  {command}"


def status_line(run: Run) -> str:
    """Describe the state of a run after something was done to it."""
    where = f"{run.id} is {run.status}"
    if run.pausing:
        return f"{where} and pauses once nothing is under way any more"
    if run.all_pending:
        count = len(run.all_pending)
        return f"{where}; {count} call{'' if count == 1 else 's'} still wait{'s' if count == 1 else ''}"
    return where


def matching_actions(run: Run, action_id: str | None, kind: ActionType) -> tuple[PendingAction, ...]:
    """The pending actions of this type that are meant: all of them, or the one of this id (or of this call's)."""
    return tuple(
        action for action in run.all_pending if action.type == kind and action_id in (None, action.id, action.call_id)
    )


def refused_of(queue: str, worker: Mapping[str, Any]) -> str:
    """Why one of them does nothing, from an entry of ``refused`` of a queue."""
    names = [one_line(name) for name in worker.get("refused") or ()]
    if names == ["login"]:
        what = "its login at Redis is refused: correct the password in its address, or the server's users.acl"
    else:
        what = f"its Redis refuses it {', '.join(names)}: load the users.acl of its version (docs/how-to/upgrade.md)"
    return f"{one_line(queue)}: the worker {one_line(worker.get('id'))} does nothing: {what}"


def refused_lines(run: Run, queues: Callable[[], Mapping[str, Any]]) -> Iterator[str]:
    """A line for each of those that the run's steps might wait for; ``queues`` is asked if a step waits for long."""
    now = datetime.now(UTC)
    names = {
        step.queue or _QUEUES.get(step.kind)
        for step in run.current_steps
        if step.state is StepState.READY and step.since and (now - step.since).total_seconds() > _LONG
    }
    if names:
        try:
            entries = queues().get("data") or ()
        except ClientError:
            # The run is what was asked for.
            return
        for queue in entries:
            for worker in queue.get("refused") or () if queue.get("name") in names else ():
                yield refused_of(str(queue.get("name")), worker)


def lacked(code: str) -> str:
    """``no worker has tool look_up``, from the code of such a wait."""
    kind, _, name = one_line(code).partition(":")
    if kind == "refused_key":
        return f"the provider {name} refuses the key of the worker that took it"
    if kind == "queue" and name == MODEL.queue:
        return "no worker takes model steps: `palaver worker`"
    if kind == "queue":
        return f"no worker takes from the queue {name}: `palaver tools -Q {name}`"
    return f"no worker has {kind} {name}"


def lacks(code: str) -> str:
    """``lacks key OPENAI_API_KEY``, from what a worker reports of itself."""
    kind, _, name = one_line(code).partition(":")
    if kind == "refused_key":
        return f"leaves the provider {name} to others: its key is refused"
    return f"lacks {kind} {name}"


def serviceless(code: str) -> str:
    """``the tools' service crm: …``, from the code of such a wait."""
    name, _, why = one_line(code).rpartition(":")
    return f"the tools' service {name}: {_NO_SERVICE.get(why, why)}"


def wait_cause(reason: str, code: str) -> str:
    """Why a step waits, with what ``code`` says of it."""
    if reason == WaitReason.SERVICE_COOLDOWN:
        return serviceless(code)
    if reason == WaitReason.NO_WORKER:
        return lacked(code)
    if reason == WaitReason.TENANT_LIMIT:
        return _CAPS.get(code) or f"{reason} {code}".rstrip()
    return _NO_ROOM.get(code) or f"{reason} {code}".rstrip()


def waiting(run: Run) -> str:
    """Why the run does not go on right now; empty when it is not waiting."""
    if run.waiting is None:
        return ""
    parts = [WAITS[run.waiting.reason]]
    if run.waiting.reason is WaitReason.NO_WORKER:
        parts = [lacked(run.waiting.code or "")]
    if run.waiting.reason is WaitReason.SERVICE_COOLDOWN:
        parts = [serviceless(run.waiting.code or "")]
    if run.waiting.code == "outage":
        parts = ["outage of the provider"]
    if run.waiting.reason is WaitReason.TENANT_LIMIT:
        parts = [_CAPS.get(run.waiting.code or "", parts[0])]
    if run.waiting.reason is WaitReason.STORE:
        parts = [f"store takes no writes: {_NOT_WRITTEN.get(run.waiting.code or '', run.waiting.code)}"]
    if run.waiting.position:
        parts.append(f"place {run.waiting.position}")
    if run.waiting.run_id:
        ahead = run.waiting.reason is WaitReason.CONVERSATION_BUSY
        parts.append(f"{'behind ' if ahead else ''}{run.waiting.run_id}")
    if run.waiting.until:
        parts.append(f"until {moment(run.waiting.until)}")
    if run.waiting.error_class:
        parts.append(f"after {run.waiting.error_class}")
    return ", ".join(parts)
