"""New runs: submitted, or made from one that has ended."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final, TypedDict, Unpack

from palaver.errors import FieldError, NotDurable, Refused, StateConflict, UnknownConversation, UnknownRun
from palaver.late import dataclass
from palaver.operations.admission import admit_condensing, admit_retry, admit_submission
from palaver.operations.backend import Backend, Caller, durable_reply, unless_changed, within_deadline
from palaver.operations.conversations import chosen_id, has_messages
from palaver.operations.scopes import keep_to_conversation, refuse_held, require_scope
from palaver.operations.secrets import carrying_secrets
from palaver.processes.failpoints import failpoint
from palaver.schemas.models import Retry, Run, Submission
from palaver.store.runs.runs import Submitted
from palaver.telemetry.logs import bind_log_context

_FEW: Final = 3
"""Messages, the fewest to condense: the user's newest one stays in any case, and so does the newest one beside it."""
_ACTING: Final = frozenset({"interrupt", "rollback", "steer"})
"""Reactions to a run that is unfinished which change that run."""

_NO_AGENT: Final = FieldError("/agent", "no_agent", "the conversation has none yet")


@dataclass(frozen=True, slots=True)
class Taken:
    """A run that was taken on."""

    run: Run
    replayed: bool = False
    """An earlier request with the same key made it."""
    steered: bool = False
    """The run was there, and the input went into it."""


class BeginOptions(TypedDict, total=False):
    """The options for beginning a run. Names are those of keys, '' for none."""

    key: str | None
    """The idempotency key: with the same one again nothing more happens."""
    begins: bool
    """True to make its conversation if there is none of that id."""
    voices: Collection[str]
    """The names of those who made the run what it is, beside the caller."""
    writers: Collection[str]
    """The names of those who wrote what the submission's agent was made of."""


async def submit(backend: Backend, submission: Submission, caller: Caller, **options: Unpack[BeginOptions]) -> Taken:
    """Take a run on, as ``begin`` does, and show it.

    Raises:
        Refused: its run was deleted since; and whatever ``begin`` raises.
    """
    submitted = await begin(backend, submission, caller, show=True, **options)
    return Taken(await _run_of(submitted, backend), submitted.replayed, submitted.steered)


async def check_submission(backend: Backend, submission: Submission, caller: Caller) -> None:
    """See that a run could be taken on, before something goes that it is to take the place of.

    Raises:
        Refused: everything that is wrong with it.
        UnknownConversation: it depends on the agent of a conversation that is not there.
        NoRoom, StoreUnavailable: not now.
    """
    await admit_submission(submission, backend, caller)
    await within_deadline(backend.store.capacity.admit())


async def begin(
    backend: Backend,
    submission: Submission,
    caller: Caller,
    *,
    show: bool = False,
    **options: Unpack[BeginOptions],
) -> Submitted:
    """Take a run on: once this answers, it will end by itself. With ``show`` a new run comes with the answer.

    Raises:
        InsufficientScope: the caller's key is not for it.
        Refused: everything that is wrong with it.
        StateConflict: the state of the conversation does not allow it, or it changed again and again meanwhile.
        IdempotencyMismatch, NoRoom, NotDurable, TimePassed, StoreUnavailable: it was not taken on, or not safely.
    """
    if submission.on_conflict in _ACTING:
        require_scope(caller, "runs:act")
    if submission.conversation_id is None:
        refuse_held(caller)
    begins = options.get("begins", False)

    async def submit_admitted() -> tuple[Submitted, NotDurable | None]:
        admitted = await admit_submission(submission, backend, caller, options.get("writers", ()))
        if begins:
            chosen = chosen_id(backend, submission.conversation_id or "")
            await within_deadline(backend.store.memories.bring_back(chosen))
        if submission.on_conflict == "steer":
            await within_deadline(backend.store.capacity.admit())
        submitting = backend.store.runs.submit(
            admitted.body,
            received=submission,
            idempotency_key=options.get("key"),
            by=caller.identity,
            agent_by=admitted.agent_by,
            voices=options.get("voices", ()),
            begins=begins,
            lacks=admitted.lacks,
            seen_agent=admitted.seen_agent,
            show=show,
        )
        return await durable_reply(submitting)

    try:
        if caller.conversation is not None:
            await keep_to_conversation(backend, caller, submission.conversation_id or "")
        submitted, unsafe = await unless_changed(submit_admitted)
    except UnknownConversation:
        fault = FieldError("/conversation_id", "unknown_conversation", "is not a conversation, or not any more")
        raise Refused.of_faults([_NO_AGENT if begins else fault]) from None
    except StateConflict as conflict:
        if conflict.code == "no_agent":
            raise Refused.of_faults([_NO_AGENT]) from None
        raise await explained(conflict, backend) from None
    failpoint("run.submitted")
    backend.publisher.publish_soon(submitted.deliveries)
    if unsafe:
        raise unsafe
    failpoint("run.answering")
    bind_log_context(run=submitted.run_id)
    return submitted


async def run_begun_with(
    backend: Backend, keys: Sequence[str], caller: Caller, *, beside: str | None = None
) -> Run | None:
    """Return the run that an earlier request with one of these keys made; None if there is none, or not any more.
    ``beside`` is a run or the conversation that it was to go on with."""
    runs = backend.store.runs
    run_id = await within_deadline(runs.begun_with(keys, by=caller.identity, beside=beside))
    with suppress(UnknownRun):
        return None if run_id is None else await within_deadline(runs.get(run_id))
    return None


async def condense(backend: Backend, conversation_id: str, caller: Caller, *, key: str | None = None) -> Taken:
    """Begin a run that puts a summary in the place of the conversation's older part, as its models see it, and does
    nothing else.

    Raises:
        UnknownConversation, StateConflict: there is no such conversation, or ``nothing_to_condense``,
            ``conversation_busy``, ``no_agent``, ``conversation_changed`` again and again.
        IdempotencyMismatch, NoRoom, NotDurable, StoreUnavailable: it was not taken on, or not safely.
    """
    if not await has_messages(backend, conversation_id, _FEW):
        raise StateConflict("nothing_to_condense", None, "too little was said to be condensed")
    submission = Submission(conversation_id=conversation_id, input=(), tags=("condense",))

    async def submit_admitted() -> tuple[Submitted, NotDurable | None]:
        admitted = await admit_condensing(submission, backend, caller)
        submitting = backend.store.runs.submit(
            admitted.body,
            received=submission,
            idempotency_key=key,
            by=caller.identity,
            condenses=True,
            seen_agent=admitted.seen_agent,
            show=True,
        )
        return await durable_reply(submitting)

    submitted, unsafe = await unless_changed(submit_admitted)
    backend.publisher.publish_soon(submitted.deliveries)
    if unsafe:
        raise unsafe
    return Taken(await _run_of(submitted, backend), submitted.replayed)


async def retry(backend: Backend, run_id: str, body: Retry, caller: Caller, *, key: str | None = None) -> Taken:
    """Go on with a run that has ended in a new one, or fork it.

    Raises:
        InsufficientScope: it is a fork, and the caller's key is held to one conversation.
        Refused: everything that is wrong with it, or its run was deleted since.
        UnknownRun, StateConflict: there is no such run, or it left nothing to go on with.
        IdempotencyMismatch, NoRoom, NotDurable, TimePassed, StoreUnavailable: it was not taken on, or not safely.
    """
    if body.from_step is not None:
        refuse_held(caller)
    admitted = await admit_retry(run_id, body, backend, caller)
    try:
        with carrying_secrets():
            retrying = backend.store.control.retry(
                run_id,
                admitted.body,
                received=body,
                idempotency_key=key,
                by=caller.identity,
                agent_by=admitted.agent_by,
            )
            made, unsafe = await durable_reply(retrying)
    except StateConflict as conflict:
        if conflict.code != "unknown_step":
            raise
        step = (await within_deadline(backend.store.runs.get(run_id))).step
        why = f"is not a step that a model answered in; the run came to step {step}"
        raise Refused.of_faults([FieldError("/from_step", "unknown_step", why)]) from None
    backend.publisher.publish_soon(made.deliveries)
    if unsafe:
        raise unsafe
    return Taken(await _run_of(made, backend), made.replayed)


async def explained(conflict: StateConflict, backend: Backend) -> StateConflict:
    """Return the conflict, with the pending actions of the run that stands in the way."""
    if conflict.run_id is not None:
        with suppress(UnknownRun):
            conflict.pending_actions = (await within_deadline(backend.store.runs.get(conflict.run_id))).all_pending
    return conflict


async def _run_of(made: Submitted, backend: Backend) -> Run:
    run = made.run or await _read(made.run_id, backend)
    bind_log_context(run=run.id, **({"trace_id": run.trace_id} if run.trace_id else {}))
    return run


async def _read(run_id: str, backend: Backend) -> Run:
    try:
        return await within_deadline(backend.store.runs.get(run_id))
    except UnknownRun:
        raise Refused("run_not_found", "The run of this Idempotency-Key was deleted: use a new key.") from None
