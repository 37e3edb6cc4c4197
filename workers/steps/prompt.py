"""The conversation as the next model call is to see it, and what this attempt changed about it."""

from __future__ import annotations

from typing import Final

from palaver.schemas.models import AgentSpec, Message
from palaver.schemas.opaque import Opaque
from palaver.steps.leases import Lease
from palaver.steps.stuck import Nudge, Stuck, find_repetition
from palaver.steps.verdicts import Condensed, LogNote, ReasoningDropped

from ..protocols import ModelProtocol
from .conversations import CachedConversation, OlderPart

_EMPTY: Final = (
    "[Automatic note] Your last answer was empty. If the work is done, say in a sentence what came of it. "
    "If it is not, go on."
)

_NO_TOOL: Final = "[Automatic note] The tool %s is left out: the provider of this model refused its schema."
_LEFT_OUT: Final = (
    "[Automatic note] Images or files above are left out: the provider of this model refused them. "
    "Say so if it matters."
)


class Prompt:
    """The conversation for one attempt. Changes of it (`notes`) go into the log with the outcome of the attempt."""

    def __init__(self, lease: Lease, conversation: CachedConversation) -> None:
        self._lease = lease
        self._conversation = conversation
        self._changes: list[Condensed | ReasoningDropped] = []
        self._nudges: list[Nudge] = []

    @property
    def agent(self) -> AgentSpec:
        """The agent as the next call is to see it: once the model has called the tool that it had to, it is free to
        answer. It would call it for ever."""
        agent = self._lease.agent
        if agent.tool_choice in (None, "auto", "none") or not self._conversation.turns(self._lease.run_id):
            return agent
        return agent.model_copy(update={"tool_choice": None})

    def messages(self) -> list[bytes]:
        """The conversation up to here, each message in the form of the protocol."""
        messages = self._conversation.messages()
        if not self._nudges:
            return messages
        told = (self.protocol.message(Message(role="user", content=nudge.text)) for nudge in self._nudges)
        return [*messages, *told]

    @property
    def protocol(self) -> ModelProtocol:
        """The protocol in which the model is asked."""
        return self._conversation.protocol

    @property
    def bytes(self) -> int:
        """Its approximate size."""
        return len(self._lease.agent.instructions) + sum(map(len, self.messages()))

    @property
    def tokens(self) -> int:
        """Input tokens of the conversation's newest call; 0 when unknown, or when it was condensed since."""
        return self._conversation.prompt_tokens

    @property
    def too_long(self) -> int | None:
        """Bytes that have to go away at least, of a conversation that is longer than the agent lets it be; None if it
        is not. Less is not worth a call: with long instructions each call would be over the threshold."""
        agent = self._lease.agent
        if agent.condense_at is not None and self.tokens > agent.condense_at:
            return agent.condense_at
        if agent.condense_at_messages is not None and len(self.messages()) > agent.condense_at_messages:
            return 1
        return None

    def opaque(self, fields: str) -> Opaque | None:
        """``fields`` that the model that is asked wants back with its answer; None if there are none."""
        return Opaque(self._conversation.origin, fields) if fields else None

    def older_part(self) -> OlderPart | None:
        """The part of the conversation that could be condensed."""
        most = self._lease.agent.condense_at_messages
        return self._conversation.older_part(most // 2) if most else self._conversation.older_part()

    def condense(self, condensed: Condensed) -> None:
        """The model sees a summary from here on."""
        self._changes.append(condensed)
        self._conversation = self._conversation.having(condensed)

    @property
    def condensed(self) -> bool:
        """True if the conversation was condensed, and not answered since."""
        return self._conversation.condensed

    def drop_reasoning(self) -> bool:
        """Send the model nothing back that it made so far. Returns whether there was something."""
        dropped = ReasoningDropped(self._conversation.origin)
        without = self._conversation.dropping(dropped)
        if without.messages() == self._conversation.messages():
            return False
        self._conversation = without
        self._changes.append(dropped)
        return True

    def detect_repetition(self) -> Stuck | None:
        """Return how the run is stuck; None if it is not. If it might be, the next model call contains a hint to the
        model."""
        turns = self._conversation.turns(self._lease.run_id)
        judged = find_repetition(turns, self._lease.agent.stuck, nudged=self._conversation.nudged)
        if isinstance(judged, Stuck):
            return judged
        self._nudges += [judged] if judged else []
        return None

    def leave_out_media(self) -> bool:
        """Send the model words in place of images and files: of those that are new to it, and the next time of all.
        Returns whether there were any."""
        for after in (self._conversation.answered, 0):
            without = self._conversation.leaving_out(after)
            if without.messages() != self._conversation.messages():
                self._conversation = without
                self._nudges.append(Nudge(_LEFT_OUT, left_out_after=after))
                return True
        return False

    def tell_of_tool(self, name: str) -> None:
        """Tell the model that a tool is not offered any more."""
        self._nudges.append(Nudge(_NO_TOOL % name))

    def ask_for_words(self) -> bool:
        """Tell the model that its answer was empty. Returns whether that may mean that it is done: it has the results
        of its calls and has said nothing since."""
        if not self._conversation.turns(self._lease.run_id):
            return False
        self._nudges.append(Nudge(_EMPTY))
        return True

    @property
    def corrected(self) -> bool:
        """True if the model was told already that an answer of this run is not what was asked for."""
        return self._conversation.corrected

    @property
    def notes(self) -> tuple[LogNote, ...]:
        """The changes of this attempt, for the log."""
        return (*self._changes, *self._nudges)
