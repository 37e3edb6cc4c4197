"""Advice about a run that did not complete: why it ended, and what can be done about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from palaver.cli.text import one_line, provider_message, why
from palaver.errors import FACTS, ErrorClass
from palaver.schemas.models import Run
from palaver.vocabulary.lifecycle import StopReason
from palaver.vocabulary.limits import limit_of

_RETRY: Final = "`palaver retry {run}`"
_GO_ON: Final = "what it did is kept; go on with `palaver run TEXT -c {conversation}`"
_ADVICE: Final[Mapping[str, str]] = {
    ErrorClass.AUTHENTICATION: "check the key of provider {provider}, the variable that its api_key_env names",
    ErrorClass.PERMISSION: "ask provider {provider} for access to this model, or choose another one",
    ErrorClass.NOT_FOUND: "check the model's name and the base_url of provider {provider}",
    ErrorClass.QUOTA_EXHAUSTED: "add credit at provider {provider}, or choose a model of another one",
    ErrorClass.CONTENT_FILTER: "say it in other words, in a new conversation if this one stays refused; or choose"
    " another model",
    ErrorClass.CONTEXT_WINDOW: 'send less, begin a new conversation, or leave "condense" of the agent on',
    ErrorClass.INVALID_OUTPUT: "say in the instructions what is wanted, simplify the schema, or choose another model",
    ErrorClass.NO_WORKER: f"start a worker that has it, then go on with {_RETRY}",
    ErrorClass.STUCK: 'change the input, the instructions or the tools, or the limits, "stuck" of the agent',
    StopReason.BUDGET: _GO_ON + ", or give it more with --budget",
    StopReason.MAX_STEPS: _GO_ON + ", or give it more with --max-steps",
    StopReason.MAX_TOKENS: "allow longer answers, max_output_tokens of the agent",
    ErrorClass.INTERNAL: "nothing; it is a bug, and the worker's log has the traceback under the run's id",
    "retry": f"go on with {_RETRY}",
    "settings": "check the key, the model's name and the limits",
    "wait": f"wait a while, then go on with {_RETRY}",
    "fix_input": "change the input or the instructions; a message that stays refused can be taken back:"
    " `palaver withdraw {conversation} --after POSITION`",
}
"""By error class or stop reason; for those without an entry, by user action."""


class Advice(NamedTuple):
    """The reason ``why`` a run ended, the ``provider_message`` about it, and ``what_to_do`` with the user action; empty
    where there is nothing to say."""

    why: str
    provider_message: str
    what_to_do: str


def advise(run: Run) -> Advice:
    """Return the advice about a run that has ended otherwise than completed, or by request."""
    kind, action, sentence = _judged(run)
    words = provider_message(run.error or run.incomplete_details, limit_of("provider_message"))
    advice = _ADVICE.get(kind) or _ADVICE.get(action)
    if advice is None:
        return Advice(sentence, words, "")
    provider = run.error.get("provider") if run.error else None
    name = one_line(provider.get("name")) if isinstance(provider, dict) else run.model.partition("/")[0]
    if run.retried_as and _RETRY in advice:
        # Only the newest run of a conversation can be retried.
        return Advice(sentence, words, f"it was retried: `palaver show {run.retried_as}` says what came of it")
    what_to_do = advice.format(provider=name, conversation=run.conversation_id, run=run.id)
    return Advice(sentence, words, f"{what_to_do} ({action})")


def _judged(run: Run) -> tuple[str, str, str]:
    """Error class or stop reason, user action and sentence."""
    if run.error is not None:
        return str(run.error.get("class")), str(run.error.get("user_action")), why(run.error)
    match run.stop_reason:
        case StopReason.BUDGET as stop:
            return stop, "settings", "The run's budget is used up."
        case StopReason.MAX_STEPS as stop:
            return stop, "settings", "The run used all its steps."
        case StopReason.DEADLINE as stop:
            return stop, "retry", "The run is past its deadline."
        case StopReason.CONTENT_FILTER as stop:
            facts, details = FACTS[ErrorClass.CONTENT_FILTER], run.incomplete_details
            return stop, facts.user_action, why(details) if details else facts.sentence
        case StopReason.CONVERSATION_FULL as stop:
            return stop, "fix_input", "The conversation has no room for another model call; begin a new one."
        case StopReason.MAX_TOKENS as stop:
            return stop, "settings", "The answer was cut at the model's output limit."
        case _:
            return "", "", ""
