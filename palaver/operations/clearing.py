"""The deletion of a conversation that may have unfinished runs."""

from __future__ import annotations

from contextlib import suppress
from typing import Literal

from palaver.errors import StateConflict, UnknownConversation, UnknownRun
from palaver.operations.backend import Backend, Caller
from palaver.operations.control import cancel
from palaver.operations.conversations import delete_conversation, read_conversation
from palaver.operations.waiting import in_time, place_of_watcher
from palaver.store.reading.feeds import IDLE


async def clear_conversation(backend: Backend, conversation_id: str, caller: Caller, *, seconds: float) -> None:
    """Cancel all runs of a conversation, and forget it once the workers have let go of them.

    Raises:
        UnknownConversation: there is no such conversation (any more).
        StateConflict: ``conversation_busy``: they had not after ``seconds``, or when the process had to end.
        NoRoom: the workers must be waited for, and too many clients wait already.
        NotDurable, StoreUnavailable: it may be there still.
    """
    if not await _free(backend, conversation_id, caller):
        with place_of_watcher(backend):
            if not await in_time(backend, _once_free(backend, conversation_id, caller), seconds):
                why = "its run is cancelled, and a worker has not let go of that yet: ask again"
                raise StateConflict("conversation_busy", None, why)
    # Not a part of the wait: what is begun of it is done.
    await delete_conversation(backend, conversation_id, caller)


async def _once_free(backend: Backend, conversation_id: str, caller: Caller) -> Literal[True]:
    with backend.store.conversation_feeds.listening(conversation_id) as news:
        while True:
            news.stale = False
            if await _free(backend, conversation_id, caller):
                return True
            if not news.stale:
                await news.silent(IDLE)


async def _free(backend: Backend, conversation_id: str, caller: Caller) -> bool:
    """Cancel the unfinished runs of a conversation. Tell whether there are none now."""
    for run_id in await _unfinished(backend, conversation_id):
        with suppress(UnknownRun, StateConflict):
            await cancel(backend, run_id, caller)
    return not await _unfinished(backend, conversation_id)


async def _unfinished(backend: Backend, conversation_id: str) -> list[str]:
    """Return the ids of unfinished runs, the last ones first: none of them is to begin. There are none if only a part
    of the conversation is left: its deletion was interrupted, and can be done again."""
    try:
        there = await read_conversation(backend, conversation_id)
    except UnknownConversation:
        return []
    return [*reversed(there.unfinished_runs)]
