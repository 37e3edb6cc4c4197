"""The use cases, without a word of HTTP: a dialect calls these, and says what it got in its own words.

Each takes the backend first, and typed values of ``palaver.schemas.models``. They raise the errors of
``palaver.errors``.
"""

from __future__ import annotations

from palaver.operations.acting import acting_for
from palaver.operations.admission import as_it_was
from palaver.operations.agents import AgentPage, keep_agent, list_agents, read_agent, remove_agent
from palaver.operations.answering import answer_run, answered_actions
from palaver.operations.asking import ask
from palaver.operations.audit import is_kept, keep_act, read_audit
from palaver.operations.backend import Backend, Caller, Publishing
from palaver.operations.bulk import Bulk, BulkResult, act_on_runs
from palaver.operations.callers import read_caller
from palaver.operations.clearing import clear_conversation
from palaver.operations.control import InputOutcome, act, cancel, delete_run, hand_over
from palaver.operations.conversation_events import PlacedSlice, read_conversation_events, watch_conversation
from palaver.operations.conversation_lists import count_conversations, list_conversations, read_conversations
from palaver.operations.conversations import (
    IncludedInMessages,
    MessagePage,
    change_conversation,
    conversation_of,
    create_conversation,
    delete_conversation,
    read_conversation,
    read_dialect_text,
    read_messages,
    standing_agent,
)
from palaver.operations.history import append, fork, withdraw
from palaver.operations.keys import create_key, list_keys, read_key, revoke_key, rotate_key
from palaver.operations.listing import count_runs, list_runs
from palaver.operations.live_keys import InvalidKey, IssuerUnavailable, LiveKey, LiveToken, is_away, key_ended
from palaver.operations.log import (
    begins_turn,
    follow_log,
    last_message,
    leave_position,
    log_end,
    once_there,
    position_left,
    read_log,
    read_run_log,
)
from palaver.operations.metrics import read_metrics
from palaver.operations.models import ModelPage, is_nameable, list_models, nameable_models
from palaver.operations.named_conversations import conversation_named, keep_to_named, submit_to_named
from palaver.operations.queues import (
    LackedState,
    LostState,
    ProviderState,
    QueueState,
    RefusedWorker,
    RoomState,
    check_store,
    read_archive,
    read_lacked,
    read_of_features,
    read_providers,
    read_queues,
    read_refused,
    read_room,
)
from palaver.operations.scopes import (
    InsufficientScope,
    keep_to_conversation,
    keep_to_run,
    refuse_held,
    require_scope,
)
from palaver.operations.secrets import secret_names, set_secrets
from palaver.operations.services import ServiceState, read_services
from palaver.operations.stored_keys import StoredKeys
from palaver.operations.submitting import Taken, begin, check_submission, condense, retry, run_begun_with, submit
from palaver.operations.tenants import change_tenant, list_tenants, read_tenant
from palaver.operations.tokens import create_token
from palaver.operations.tools import ToolState, known_tools, read_tools
from palaver.operations.usage import UsageReport, UsageRow, read_usage
from palaver.operations.waiting import (
    Until,
    admit_watcher,
    await_run,
    has_unheard_words,
    may_watch,
    place_of_watcher,
    read_run,
)
from palaver.operations.watching import Batches, EventSlice, Included, follow, read_events, watch
from palaver.schemas.conversation import ConversationCount, ConversationFilter, ConversationOrder
from palaver.schemas.filters import RunFilter
from palaver.store.conversations.conversations import DialectText, DialectTexts, ListedConversations
from palaver.store.reading.conversation_feeds import FeedCursor, PlacedBatches
from palaver.store.reading.events import LogEntry, PlacedEvent, StoredEvent
from palaver.store.reading.listing import RunPage
from palaver.store.redis.single_flight import SingleFlight
from palaver.store.redis.visits import Gap, telling

__all__ = [
    "AgentPage",
    "Backend",
    "Batches",
    "Bulk",
    "BulkResult",
    "Caller",
    "ConversationCount",
    "ConversationFilter",
    "ConversationOrder",
    "DialectText",
    "DialectTexts",
    "EventSlice",
    "FeedCursor",
    "Gap",
    "Included",
    "IncludedInMessages",
    "InputOutcome",
    "InsufficientScope",
    "InvalidKey",
    "IssuerUnavailable",
    "LackedState",
    "ListedConversations",
    "LiveKey",
    "LiveToken",
    "LogEntry",
    "LostState",
    "MessagePage",
    "ModelPage",
    "PlacedBatches",
    "PlacedEvent",
    "PlacedSlice",
    "ProviderState",
    "Publishing",
    "QueueState",
    "RefusedWorker",
    "RoomState",
    "RunFilter",
    "RunPage",
    "ServiceState",
    "SingleFlight",
    "StoredEvent",
    "StoredKeys",
    "Taken",
    "ToolState",
    "Until",
    "UsageReport",
    "UsageRow",
    "act",
    "act_on_runs",
    "acting_for",
    "admit_watcher",
    "answer_run",
    "answered_actions",
    "append",
    "as_it_was",
    "ask",
    "await_run",
    "begin",
    "begins_turn",
    "cancel",
    "change_conversation",
    "change_tenant",
    "check_store",
    "check_submission",
    "clear_conversation",
    "condense",
    "conversation_named",
    "conversation_of",
    "count_conversations",
    "count_runs",
    "create_conversation",
    "create_key",
    "create_token",
    "delete_conversation",
    "delete_run",
    "follow",
    "follow_log",
    "fork",
    "hand_over",
    "has_unheard_words",
    "is_away",
    "is_kept",
    "is_nameable",
    "keep_act",
    "keep_agent",
    "keep_to_conversation",
    "keep_to_named",
    "keep_to_run",
    "key_ended",
    "known_tools",
    "last_message",
    "leave_position",
    "list_agents",
    "list_conversations",
    "list_keys",
    "list_models",
    "list_runs",
    "list_tenants",
    "log_end",
    "may_watch",
    "nameable_models",
    "once_there",
    "place_of_watcher",
    "position_left",
    "read_agent",
    "read_archive",
    "read_audit",
    "read_caller",
    "read_conversation",
    "read_conversation_events",
    "read_conversations",
    "read_dialect_text",
    "read_events",
    "read_key",
    "read_lacked",
    "read_log",
    "read_messages",
    "read_metrics",
    "read_of_features",
    "read_providers",
    "read_queues",
    "read_refused",
    "read_room",
    "read_run",
    "read_run_log",
    "read_services",
    "read_tenant",
    "read_tools",
    "read_usage",
    "refuse_held",
    "remove_agent",
    "require_scope",
    "retry",
    "revoke_key",
    "rotate_key",
    "run_begun_with",
    "secret_names",
    "set_secrets",
    "standing_agent",
    "submit",
    "submit_to_named",
    "telling",
    "watch",
    "watch_conversation",
    "withdraw",
]
