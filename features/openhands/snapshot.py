"""A conversation as it is now, in OpenHands' words; and changes of the state that the dialect stores with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias
from uuid import UUID

from palaver import operations
from palaver.errors import StateConflict, UnknownRun
from palaver.late import dataclass
from palaver.operations import Backend, Caller
from palaver.schemas.actions import ClientTool
from palaver.schemas.conversation import Conversation, ConversationPatch
from palaver.schemas.models import Run
from palaver.vocabulary.lifecycle import RunStatus

from .content import announced, shown
from .events import Writer
from .state import ClientState, full_state
from .tables import ExecutionStatus, execution_status

NAME: Final = "openhands"
"""The name of the dialect, under which its state is stored."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A conversation, and all that clients are shown of it."""

    number: UUID
    conversation: Conversation
    state: ClientState
    run: Run | None
    """The active run, else the run that ended last; None if it is gone, or there was none."""
    last: dict[str, Any] | None
    """The last message, if no run is there."""

    @property
    def id(self) -> str:
        """The conversation's id here."""
        return self.conversation.id

    @property
    def client_tools(self) -> Sequence[ClientTool]:
        """The tools that clients carry out themselves."""
        agent = self.conversation.agent
        return announced(agent.client_tools) if agent else ()

    @property
    def active(self) -> Run | None:
        """The run that is going on."""
        return None if self.run is None or self.run.status.terminal else self.run

    @property
    def unanswered(self) -> bool:
        """True if the last message is the user's, and no run is there to answer it."""
        return self.last is not None and self.last["role"] == "user"

    @property
    def untouched(self) -> bool:
        """True if there is a message of the user's, and no run was ever begun to answer it."""
        return self.unanswered and self.conversation.last_outcome is None

    @property
    def answer(self) -> str:
        """The last answer of its agent; empty if there is none."""
        if self.run is not None and self.run.output:
            return self.run.output
        match self.last:
            # Its newest run has only condensed.
            case {"role": "assistant", "content": content} | {"role": "tool", "name": "finish", "content": content}:
                return "\n".join(part.get("text", "") for part in shown(content))
            case _:
                return ""

    @property
    def status(self) -> ExecutionStatus:
        """Its execution status."""
        now, ended = self.conversation, self.conversation.last_outcome
        if self.state.deleted_with is not None and self.state.deleted_with == self.conversation.newest_run:
            return ExecutionStatus.DELETING
        if now.unfinished_runs:
            pausing = self.active is not None and self.active.pausing
            status = self.active.status if self.active else RunStatus.RUNNING
            return ExecutionStatus.PAUSED if pausing else execution_status(status)
        status_then = execution_status(ended.status, ended.stop_reason) if ended else ExecutionStatus.IDLE
        if self.unanswered and status_then.over:
            status_then = ExecutionStatus.IDLE
        held = status_then is ExecutionStatus.IDLE and self.state.paused_after == (self.conversation.newest_run or "")
        return ExecutionStatus.PAUSED if held else status_then

    @property
    def writer(self) -> Writer:
        """The writer of its events."""
        return Writer(self.number, self.state.generation, {tool.name: tool for tool in self.client_tools})

    def info(self) -> dict[str, Any]:
        """Return the full state, as clients read it."""
        about = self.conversation
        return full_state(
            self.number,
            self.state,
            self.status,
            title=about.title,
            tags=about.metadata,
            created_at=about.created_at,
            updated_at=about.updated_at,
            usage=about.usage,
            client_tools=self.client_tools,
        )


async def load_snapshot(backend: Backend, number: UUID) -> Snapshot:
    """Return a snapshot of the conversation with that UUID, also of one that was begun through another dialect.

    Raises:
        UnknownConversation: there is none (any more).
    """
    id = operations.conversation_of(backend, number)
    conversation, text = await asyncio.gather(
        operations.read_conversation(backend, id), operations.read_dialect_text(backend, id, NAME)
    )
    run_id = conversation.active_run or (conversation.last_outcome.run_id if conversation.last_outcome else None)
    run = None
    if run_id is not None:
        try:
            run = await backend.run(run_id)
        except UnknownRun:
            run = None
    over = not conversation.unfinished_runs
    last = await operations.last_message(backend, id) if over and conversation.entries else None
    state = ClientState.model_validate_json(text.text) if text.text else ClientState.of_spec(conversation.agent)
    return Snapshot(number, conversation, state, run, last.data["message"] if last else None)


_TRIES: Final = 5
"""Attempts at a change: it is made anew if another client changes the conversation meanwhile."""
_Patch: TypeAlias = Callable[[Snapshot, ClientState], ConversationPatch]


async def save_state(backend: Backend, caller: Caller, conversation: UUID, patch: _Patch, **changes: Any) -> None:
    """Change fields of the stored state, and the conversation by ``patch``, in one step: made anew if another client
    changes the conversation meanwhile.

    Raises:
        UnknownConversation: there is no such conversation (any more).
        Refused: everything that is wrong with the agent.
        StateConflict: ``conversation_revised``: others change it again and again.
        NoRoom, NotDurable, StoreUnavailable: it was not changed, or not safely.
    """
    for left in reversed(range(_TRIES)):
        snapshot = await load_snapshot(backend, conversation)
        state = snapshot.state.changed(**changes)
        try:
            body, texts = patch(snapshot, state), {NAME: state.text()}
            await operations.change_conversation(backend, snapshot.id, body, caller, dialect_texts=texts)
            return
        except StateConflict as conflict:
            if conflict.code != "conversation_revised" or not left:
                raise


def with_its_agent(snapshot: Snapshot, _: ClientState) -> ConversationPatch:
    """Return a patch that changes nothing of the conversation."""
    return ConversationPatch(revision=snapshot.conversation.revision)
