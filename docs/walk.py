"""The text of docs/why/one-step.md, and the functions that it names: their names are the markers in the code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

LUA: Final = "palaver/store/scripting/lua/"


class Stop(NamedTuple):
    """Functions of one file that the step calls one after the other, and why it calls them."""

    file: str
    names: Sequence[str]
    """As ``Class.method``; none for the whole of a script."""
    text: str
    is_printed: bool = False
    """Whether the page has their source, too; otherwise it has their names."""


class Part(NamedTuple):
    """What belongs together."""

    title: str
    stops: Sequence[Stop]


HEAD: Final = """\
# One step, from the delivery to the verdict

A run is a row of steps, and each step is one Celery task. This page names what one model step really passes: a worker
is sent a delivery, asks the model, and settles. What decides is printed from the code, without the ends of docstrings;
the rest is named, to be opened beside it. A test takes a real step along all of it, so it cannot go stale.

Three sentences carry the whole of it. *A delivery is only a hint*: it names a step, and the store decides whether
anything is to be done. *A lease is the right to work*: it has a number, and without the newest no worker can write.
*A verdict is a value*: the function of a step answers what is to follow, and one script makes it so.

"""

_STEPS: Final = "workers/steps/"
WALK: Final = (
    Part(
        "A delivery becomes a lease",
        (
            Stop(
                _STEPS + "step.py",
                ("make_attempt",),
                "Celery calls this with three ids. Claim, work, settle, follow up: all that happens to a step is in "
                "these lines. What is raised at the end is for Flower alone; the store knows the outcome by then.",
                is_printed=True,
            ),
            Stop(
                _STEPS + "outages.py",
                ("claim",),
                "Redis may be away just now, and an answer may be lost on its way. So the claim is repeated under the "
                "same nonce, which gets the same lease again and never a second one.",
            ),
            Stop(
                "palaver/store/steps/steps.py",
                ("Steps.claim",),
                "The store has one typed method for each script. The answer is a `Lease` already: the declaration of "
                "the script says how each field is read, milliseconds and JSON included.",
            ),
            Stop(
                LUA + "claim.lua",
                (),
                "Here it is decided, in one atomic script. Whatever is out of order is a stray, and the task ends. "
                "A repeated claim gets the same lease as before.",
                is_printed=True,
            ),
            Stop(
                LUA + "_lease.lua",
                (),
                "The fence grows with each lease, and the due index gets the time at which the lease runs out: if this "
                "worker dies, the step is delivered again.",
            ),
        ),
    ),
    Part(
        "The attempt begins",
        (
            Stop(
                _STEPS + "attempt.py",
                ("Attempt.__init__",),
                "An attempt is four things: the lease, the prompt, the calls of models, and the stream to watchers.",
            ),
            Stop(
                _STEPS + "step.py",
                ("_verdict", "_work"),
                "Whatever ends the function becomes a verdict here: its answer, an exception, or an interruption. Only "
                "a lost lease has none, because another worker goes on.",
                is_printed=True,
            ),
            Stop(
                _STEPS + "attempt.py",
                ("Attempt.missing_capability", "Attempt.load_conversation"),
                "A worker does only what it can. If a key, a tool or a provider is missing here, the step goes to a "
                "worker that has it, and no run fails for it. Then the log is read, beyond what this worker knew.",
            ),
            Stop(
                _STEPS + "conversations.py",
                ("CachedConversation.extend", "CachedConversation._add"),
                "The log is append-only, so what was derived from its beginning stays right. Between the steps of a "
                "run a worker keeps the messages as ready-made JSON, and a claim brings only the entries that are new.",
            ),
        ),
    ),
    Part(
        "The function of the step",
        (
            Stop(
                _STEPS + "step_functions.py",
                ("call_model",),
                "This is what a step of the kind *model* is, with its retry policy above it; the decorator makes the "
                "Celery task. All that was before, and all that comes behind, is the same for each kind.",
                is_printed=True,
            ),
            Stop(
                _STEPS + "prompt.py",
                ("Prompt.detect_repetition",),
                "A model that makes the same calls again and again is told so once, and then the run ends as stuck.",
            ),
            Stop(
                _STEPS + "prompt.py",
                ("Prompt.bytes", "Prompt.messages"),
                "The gate counts tokens before they are spent, so it wants to know how large the prompt is. The hint "
                "to a model that repeats itself is in this call alone, and in the log once it was answered.",
            ),
            Stop(
                _STEPS + "asking.py",
                ("ask_model", "_ask", "_answer"),
                "Two things can be wrong with a conversation, and both are mended within the attempt: it is too long, "
                "or it has what the provider no longer takes back.",
            ),
            Stop(
                _STEPS + "prompt.py",
                ("Prompt.agent",),
                "What the model is sent of the agent can differ from turn to turn.",
            ),
            Stop(
                _STEPS + "model_calls.py",
                ("ModelCalls.ask",),
                "Each call has a reader. It is kept from before the call, so that tokens are counted also of an answer "
                "that is cut off.",
            ),
        ),
    ),
    Part(
        "The call of the model",
        (
            Stop(
                "workers/models/model.py",
                ("ModelPort.complete",),
                "One request over one pool of connections. The protocol of the provider has written the body.",
            ),
            Stop(
                "workers/models/model.py",
                ("ModelPort._complete", "ModelPort._read", "ModelPort._first"),
                "Everything that can go wrong with a connection or an answer leaves here as an exception that "
                "`classify` knows. Leaving the block closes the stream, and with it the provider's work.",
            ),
            Stop(
                _STEPS + "model_calls.py",
                ("ModelCalls._answer_began",),
                "The first bytes show that neither the model nor its provider is out.",
            ),
            Stop(
                "workers/models/model.py",
                ("ModelPort._read_stream",),
                "The protocol's reader takes in a stream, piece by piece.",
            ),
            Stop(
                _STEPS + "answer_stream.py",
                ("AnswerStream.show",),
                "What the model says is gathered for some tens of milliseconds: one write for each token would cost "
                "more than the call.",
            ),
            Stop(
                _STEPS + "answer_stream.py",
                ("AnswerStream.take",),
                "The writer of all streams takes what is there. What may be the beginning of a secret is kept back "
                "until it is known to be none.",
            ),
            Stop(
                "workers/models/model.py",
                ("_end_of",),
                "A connection whose answer was read to its end serves the next call.",
            ),
        ),
    ),
    Part(
        "The answer becomes a verdict",
        (
            Stop(
                _STEPS + "step_functions.py",
                ("_without_calls",),
                "An answer without tool calls ends the run, unless it is not what was asked for. One with tool calls "
                "opens a step for each.",
            ),
            Stop(
                _STEPS + "answer_stream.py",
                ("AnswerStream.flush",),
                "Watchers who saw a beginning see the rest, before the message itself comes.",
            ),
            Stop(
                _STEPS + "attempt.py",
                ("Attempt.with_usage",),
                "The changes of the prompt go with the verdict: the log has them with the outcome, or not at all.",
            ),
            Stop(
                _STEPS + "model_calls.py",
                ("Tally.usage", "Tally._cost"),
                "So does the bill of the attempt, whatever the verdict is.",
            ),
            Stop(
                _STEPS + "answer_stream.py",
                ("AnswerStream.close",),
                "If watchers saw text that the verdict does not keep, they are told that it is withdrawn.",
            ),
            Stop(
                _STEPS + "attempt.py",
                ("Attempt.trace_note",),
                "What only this worker knows of the attempt is written into the trace, without content.",
            ),
        ),
    ),
    Part(
        "The verdict is settled",
        (
            Stop(
                _STEPS + "in_place.py",
                ("InPlace.offer",),
                "With a verdict that goes on, the worker offers its place. If none waits, the script claims the next "
                "step for it: no delivery, no queue. That is a Celery task, too, which begins when this one ends.",
            ),
            Stop(
                _STEPS + "outages.py",
                ("settle",),
                "A finished answer was paid for, so it waits out an outage of Redis in this worker. Only a verdict "
                "that the store cannot take, though it is well, ends the run: it would be repeated for ever.",
            ),
            Stop(
                "palaver/store/steps/steps.py",
                ("Steps.settle",),
                "Stale means that the lease is not the newest. Then nothing was written, not a byte.",
            ),
            Stop(
                "palaver/store/steps/settling.py",
                ("settlement", "_settle", "_entries", "_message", "used"),
                "A closed union of six verdicts is matched, and each becomes the call of one script: the entries of "
                "the log, the steps that are opened, what was used.",
            ),
            Stop(
                LUA + "settle.lua",
                (),
                "All that follows from a step happens in this script, or nothing of it: the entries of the log, the "
                "next steps, the end of the run, the counts. An acknowledged cancel wins over whatever the worker "
                "brings. What it answers are the deliveries that are due now.",
                is_printed=True,
            ),
            Stop(
                _STEPS + "step.py",
                ("_for_flower",),
                "`make_attempt` publishes the deliveries, and the due index covers a crash before that. Last, Flower "
                "is shown what became of the step; Celery itself retries nothing.",
            ),
        ),
    ),
)

LEFT_OUT: Final = (
    "palaver/incoming/",
    "palaver/processes/failpoints.py",
    "palaver/schemas/unchecked.py",
    "palaver/secrets/redaction.py",
    "palaver/steps/stuck.py",
    "palaver/store/redis/keys.py",
    "palaver/store/scripting/",
    "palaver/store/redis/visits.py",
    "palaver/store/steps/steps.py:Steps.write_deltas",
    "palaver/store/steps/steps.py:_batches",
    "palaver/store/steps/settling.py:_opened",
    "workers/models/call_clock.py",
    "workers/models/destination.py",
    "workers/models/limit_keys.py",
    "workers/models/model.py:ModelPort._connected",
    "workers/models/provider_limiter.py",
    "workers/models/reading_turns.py",
    "workers/models/refused_keys.py",
    "workers/connections/response_heads.py",
    "workers/connections/transport.py",
    "workers/protocols/",
    "workers/steps/capabilities.py",
    "workers/steps/active_step.py",
    "workers/steps/conversation_cache.py",
    "workers/steps/conversations.py:CachedConversation.__init__",
    "workers/steps/answer_stream.py:AnswerStream.__init__",
    "workers/steps/delta_writer.py",
    "workers/steps/histograms.py",
    "workers/steps/model_calls.py:ModelCalls.__init__",
    "workers/models/provider_permit.py",
    "workers/steps/output_check.py",
    "workers/steps/attempt_notes.py",
)
"""Files, folders and functions that a step passes besides, each a subject of its own."""
