"""What can be done, without a word of HTTP: a dialect calls these, and says what it got in its own words.

Each takes the backend first, and typed values of ``palaver.models``. They raise the errors of ``palaver.errors``.
"""

from __future__ import annotations

from api.operations.backend import Backend, Caller, Publishing
from api.operations.bulk import Bulk, BulkResult, act_on_runs
from api.operations.control import Acted, act, cancel, delete_run
from api.operations.conversations import (
    MessagePage,
    create_conversation,
    delete_conversation,
    read_conversation,
    read_messages,
)
from api.operations.listing import list_runs
from api.operations.queues import (
    ProviderState,
    QueueState,
    RoomState,
    check_store,
    read_providers,
    read_queues,
    read_room,
)
from api.operations.submitting import Taken, retry, submit
from api.operations.tools import ToolState, read_tools
from api.operations.waiting import Until, admit_watcher, await_run, may_watch, read_run
from api.operations.watching import Batches, EventSlice, follow, read_events, watch
from palaver.filters import RunFilter
from palaver.store.events import StoredEvent
from palaver.store.reading import RunPage

__all__ = [
    "Acted",
    "Backend",
    "Batches",
    "Bulk",
    "BulkResult",
    "Caller",
    "EventSlice",
    "MessagePage",
    "ProviderState",
    "Publishing",
    "QueueState",
    "RoomState",
    "RunFilter",
    "RunPage",
    "StoredEvent",
    "Taken",
    "ToolState",
    "Until",
    "act",
    "act_on_runs",
    "admit_watcher",
    "await_run",
    "cancel",
    "check_store",
    "create_conversation",
    "delete_conversation",
    "delete_run",
    "follow",
    "list_runs",
    "may_watch",
    "read_conversation",
    "read_events",
    "read_messages",
    "read_providers",
    "read_queues",
    "read_room",
    "read_run",
    "read_tools",
    "retry",
    "submit",
    "watch",
]
