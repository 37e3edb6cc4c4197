"""Every limit of the core, and what finds those of features: code takes its numbers from here, and
docs/reference/limits.md is made from it.

``python -m docs.generate limits`` prints the tables of docs/reference/limits.md; a test compares them. A limit
with a ``setting`` is the default of that field of ``palaver.config.settings.Settings``, or of a provider's table where
it says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

from palaver.feature import with_rows
from palaver.late import dataclass

KIB: Final = 1024
MIB: Final = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that something may be."""

    group: str
    """The table of docs/reference/limits.md that it stands in."""
    name: str
    """The name of its counter, and in ``all_limits``."""
    what: str
    value: int
    unit: str
    answer: str
    """The answer to a caller that goes beyond: a problem code, an error code, or what happens."""
    setting: str = ""
    """The environment variable, or the key of a provider's table, that changes it; empty if nothing does."""


def limit_rows(name: str, *rows: tuple[str, str, int, str, str] | tuple[str, str, int, str, str, str]) -> list[Limit]:
    """Return limits of a group, by their fields."""
    return [Limit(name, *row) for row in rows]


_ALL: Final = (
    *limit_rows(
        "Requests",
        ("url", "path and query of a URL", 8 * KIB, "bytes", "414 `uri_too_long`"),
        ("headers", "all headers together", 32 * KIB, "bytes", "431 `headers_too_large`"),
        ("header_count", "headers of a request", 100, "headers", "431 `headers_too_large`"),
        ("body", "body of a request", MIB, "bytes", "413 `payload_too_large`", "PALAVER_MAX_BODY"),
        ("body_time", "time for a whole body", 10, "seconds", "408 `request_timeout`"),
        ("body_depth", "levels of objects and arrays in a body", 32, "levels", "400 `too_deep`"),
        ("body_values", "values in a body", 10_000, "values", "422 `too_many_items`"),
        ("key_text", "name of a field in a body that an answer repeats", 64, "characters", "cut"),
        ("faults", "faults that an answer names", 20, "faults", "the first are named"),
        ("faults_found", "faults of a body's shape that are looked for", 50, "faults", "the first are"),
        (
            "accept",
            "media types in Accept, wishes in Prefer",
            50,
            "entries",
            "406 `not_acceptable`; not read in Prefer",
        ),
        ("parameters", "parameters of a query", 50, "parameters", "400 `malformed_request`"),
        ("cursor", "a cursor", 200, "characters", "400 `invalid_cursor`"),
        ("filter_status", "statuses that a filter names", 16, "statuses", "422 `validation_error`"),
        (
            "list_looked",
            "runs or conversations that a page of a list looks at",
            10_000,
            "runs",
            "the page is short, and says `has_more`",
        ),
        (
            "count_looked",
            "conversations that a count with a filter looks at, and archived runs that any count does",
            100_000,
            "conversations",
            "it says that it is not `complete`",
        ),
        (
            "list_bytes",
            "data that a page of a list looks at",
            32 * MIB,
            "bytes",
            "the page is short, and says `has_more`",
        ),
        ("answer_bytes", "a page as it is answered, about", 4 * MIB, "bytes", "the page is short, and says `has_more`"),
    ),
    *limit_rows(
        "Connections",
        (
            "connections",
            "connections of an API process, if it has 136 more file descriptors",
            10_000,
            "connections",
            "503 `too_many_connections`, or the one that has been idle longest is closed",
            "PALAVER_MAX_CONNECTIONS",
        ),
        (
            "half_open",
            "connections of one address without a whole head, or sockets without a key; half of all at most",
            1_024,
            "connections",
            "each further one has a second for its head",
            "PALAVER_MAX_HALF_OPEN",
        ),
        (
            "head_time",
            "time for a whole head, or the key in a first frame",
            10,
            "seconds",
            "408 `request_timeout`; if nothing came, just the end",
        ),
        ("send_time", "time in which a client takes nothing of its answer", 60, "seconds", "the connection is closed"),
        ("socket_frame", "a frame that comes by a WebSocket", 64 * KIB, "bytes", "it is closed with 1009"),
        ("socket_parts", "frames of a WebSocket's message", 1_000, "frames", "the connection is closed"),
        ("socket_pings", "pings of a client that takes no answers", 100, "pings", "the connection is closed"),
    ),
    *limit_rows(
        "Agents",
        ("instructions", "instructions of an agent", 200_000, "characters", "422 `validation_error`"),
        ("agent_tools", "tools of an agent, and client tools", 128, "tools", "422 `validation_error`"),
        ("tool_schema", "parameters of a client tool, as JSON", 32 * KIB, "bytes", "422 `invalid_schema`"),
        ("base_url", "`base_url` of an agent's `endpoint`", 2_000, "characters", "422 `validation_error`"),
        ("fallbacks", "fallback models of an agent", 8, "models", "422 `validation_error`"),
        ("approval_patterns", "names and globs in a list of `approvals`", 64, "patterns", "422 `validation_error`"),
        ("agents", "agents that a tenant keeps on the server", 1_000, "agents", "409 `agents_full`"),
        ("agent_versions", "versions that are kept of an agent", 100, "versions", "the oldest goes"),
        ("agent_bytes", "a version of an agent, as JSON", 256 * KIB, "bytes", "422 `validation_error`"),
        ("subagents", "agents below an agent, at all levels", 32, "agents", "422 `validation_error`"),
        ("subagent_depth", "levels of agents below an agent", 4, "levels", "422 `validation_error`"),
        ("agent_tree", "an agent with the agents below it, as JSON", 512 * KIB, "bytes", "422 `validation_error`"),
        ("children", "runs that the calls of a run begin", 200, "runs", "the model is told"),
        ("pending_below", "calls of runs below that a run shows", 100, "calls", "the nearest are shown"),
        ("ag_ui_snapshot", "a thread that AG-UI shows again as a whole", 4 * MIB, "bytes", "it is not shown again"),
        ("runs_below", "runs below a run that are looked through for an action", 1_000, "runs", "409 `unknown_action`"),
        ("batch_items", "items of a batch", 100_000, "items", "409 `batch_full`"),
        ("batch_expected", "what an item expects", 16 * KIB, "characters", "422 `validation_error`"),
        ("policy_rules", "rules of PALAVER_POLICY", 1_000, "rules", "the process does not start"),
        ("policy_patterns", "names and globs in a list of a rule", 200, "patterns", "the process does not start"),
        ("stop_texts", "texts in `stop`", 4, "texts", "422 `validation_error`"),
        ("stop_text", "a text in `stop`", 256, "characters", "422 `validation_error`"),
        ("output_schema", "schema of `response_format`, as JSON", 32 * KIB, "bytes", "422 `invalid_schema`"),
        (
            "schema_parts",
            "objects and arrays in a schema of an answer or a tool, with references followed",
            2_000,
            "parts",
            "422 `invalid_schema`; arguments are for the tool to judge",
        ),
        (
            "schema_patterns",
            "patterns in such a schema; one of over 8 KiB compiled counts 3, of over 16 KiB 9",
            100,
            "patterns",
            "422 `invalid_schema`; arguments are for the tool to judge",
        ),
        ("extra_body", "`extra_body`, as JSON", 16 * KIB, "bytes", "422 `unsupported_option`"),
        ("extra_body_fields", "fields of `extra_body`", 32, "fields", "422 `validation_error`"),
        ("declared_tools", "tools of a worker", 500, "tools", "the worker does not start"),
        (
            "declared_tools_bytes",
            "declarations of a worker's tools, as JSON",
            256 * KIB,
            "bytes",
            "the worker does not start",
        ),
        ("tool_sources", "sources that a file declares", 64, "sources", "the worker does not start"),
        ("tool_queues", "queues that tools name, in an installation", 32, "queues", "the worker does not start"),
        ("services", "services of tools that are shown", 200, "services", "the first by name are shown"),
        ("tool_sets", "versions of workers whose tools are known", 8, "versions", "the others are left out"),
        (
            "tools_remembered",
            "time for which the tools of a queue without workers stay known",
            30 * 86_400,
            "seconds",
            "422 `unknown_tool`",
        ),
        ("no_worker", "time without a worker that has what a step needs", 3600, "seconds", "fails: `no_worker`"),
        (
            "no_worker_told",
            "time without one, though a worker says that it has it",
            14_400,
            "seconds",
            "fails: `no_worker`",
        ),
        (
            "lacks",
            "tools, providers and keys that steps wait for, as they are shown",
            50,
            "names",
            "the others are left out",
        ),
        ("tool_description", "description of a client tool", 10_000, "characters", "422 `validation_error`"),
        ("acknowledgement", "`acknowledgement` of a client tool", 2_000, "characters", "422 `validation_error`"),
    ),
    *limit_rows(
        "Conversations and runs",
        ("input_text", "text of an input, or of a steering message", 400_000, "characters", "422 `validation_error`"),
        ("input_messages", "messages of an input", 1_000, "messages", "422 `validation_error`"),
        ("referenced", "conversations whose items a request refers to", 100, "conversations", "400 `validation_error`"),
        ("message_calls", "tool calls of an input's message", 128, "calls", "422 `invalid_history`"),
        ("message_id", "id or name of a call in such a message", 128, "characters", "422 `invalid_history`"),
        ("message_parts", "parts of an input's message", 100, "parts", "422 `validation_error`"),
        ("file_name", "name of a file in an input", 256, "characters", "422 `validation_error`"),
        ("title", "title of a conversation", 200, "characters", "422 `validation_error`"),
        ("kept", "what a dialect keeps with a conversation", 256 * KIB, "bytes", "413 `payload_too_large`"),
        ("tags", "tags of a run, or of a conversation", 32, "tags", "422 `validation_error`"),
        ("metadata", "entries of `metadata`", 32, "entries", "422 `validation_error`"),
        ("metadata_key", "key in `metadata`", 64, "characters", "422 `validation_error`"),
        ("metadata_value", "value in `metadata`", 512, "characters", "422 `validation_error`"),
        (
            "secrets",
            "secrets of a conversation",
            64,
            "secrets",
            "409 `secrets_full`, or 422 `validation_error`",
        ),
        ("secret_value", "a secret", 8 * KIB, "characters", "422 `validation_error`"),
        ("secrets_bytes", "secrets of a conversation together, sealed", 64 * KIB, "bytes", "409 `secrets_full`"),
        ("run_items", "items of one `/input`", 200, "items", "422 `validation_error`"),
        ("reason", "reason of a cancel or a pause", 500, "characters", "422 `validation_error`"),
        ("deny_reason", "reason of a denial", 2_000, "characters", "422 `validation_error`"),
        (
            "memory",
            "memory of the store in use when something is to grow",
            85,
            "percent",
            "503 `store_nearly_full`",
            "PALAVER_MAX_MEMORY_PERCENT",
        ),
        ("bulk_runs", "runs that one request acts on", 1_000, "runs", "422; go on with `next_cursor`"),
    ),
    *limit_rows(
        "Tenants",
        ("tenants", "tenants of an installation, besides the default one", 10_000, "tenants", "refused"),
    ),
    *limit_rows(
        "Answers of providers",
        ("answer", "an answer, streamed", 16 * MIB, "bytes", "`response_too_large`", "max_response_bytes"),
        ("answer_rate", "bytes of an answer in a second, on average", 256 * KIB, "bytes", "read no faster"),
        ("answer_burst", "bytes of an answer before that rate counts", 256 * KIB, "bytes", "read no faster"),
        ("answer_document", "an answer that is not streamed", MIB, "bytes", "`response_too_large`"),
        ("answer_line", "a line of a stream", MIB, "bytes", "`response_too_large`"),
        ("answer_values", "objects and arrays in a line or document", 50_000, "values", "`response_too_large`"),
        (
            "answer_parts",
            "blocks, items and fields in a line or document",
            10_000,
            "parts",
            "`response_too_large`",
        ),
        ("answer_blocks", "blocks of an answer", 1_000, "blocks", "`response_too_large`"),
        ("answer_choices", "choices in a line or document", 16, "choices", "`response_too_large`"),
        ("answer_text", "text of an answer, refusals included", MIB, "characters", "`response_too_large`"),
        (
            "structured_output",
            "an answer that has to be JSON",
            256 * KIB,
            "characters",
            "told to the model once; `invalid_output`",
        ),
        (
            "schema_work",
            "values of such an answer, or of arguments, times the parts of the schema; 64 characters count as a value",
            1_000_000,
            "checks",
            "told to the model; `invalid_output`, `invalid_arguments`",
        ),
        (
            "schema_matching",
            "characters of its texts, times the patterns that one text may meet",
            30_000,
            "checks",
            "told to the model; `invalid_output`, `invalid_arguments`",
        ),
        (
            "answer_opaque",
            "reasoning and signatures that have to be sent back unchanged",
            256 * KIB,
            "bytes",
            "`response_too_large`",
        ),
        ("answer_heads", "heads of an answer, with informational ones (1xx)", 16, "heads", "`protocol_error`"),
        ("answer_end", "what follows the end of a stream", 64 * KIB, "bytes", "cut: the connection is closed"),
        ("error_message", "message of an error, also of a tool's", 500, "characters", "cut"),
        ("provider_models", "models that a provider's table lists", 200, "models", "the process does not start"),
        ("provider_message", "what a run's error repeats of what a provider said", 2 * KIB, "bytes", "cut"),
        ("error_body", "an error's body", 64 * KIB, "bytes", "cut: the rest is not read"),
        ("error_parts", "objects and arrays in an error's body that are looked at", 50, "parts", "the first are"),
        ("error_words", "text of an error that is judged", 16 * KIB, "characters", "its ends are"),
        ("tool_calls", "tool calls in an answer", 128, "calls", "`too_many_tool_calls`", "max_tool_calls"),
        ("tool_name", "name of a tool that is called", 128, "characters", "`tool_call_too_large`"),
        ("tool_arguments", "arguments of a call", 256 * KIB, "characters", "`tool_call_too_large`"),
        (
            "arguments_depth",
            "levels of objects and arrays in arguments, or in an answer that has to be JSON",
            64,
            "levels",
            "`invalid_arguments`, to the model",
        ),
        (
            "arguments_values",
            "values in the arguments of a call, or in an answer that has to be JSON",
            10_000,
            "values",
            "`invalid_arguments`, to the model",
        ),
        (
            "tool_arguments_together",
            "arguments of all calls of an answer",
            512 * KIB,
            "characters",
            "`tool_call_too_large`",
        ),
        ("answer_stored", "text and arguments of an answer, as JSON", 2 * MIB, "bytes", "`response_too_large`"),
    ),
    *limit_rows(
        "Broker",
        ("delivery", "a message of `model` and `tools`", 16 * KIB, "bytes", "dropped"),
        (
            "not_deliveries",
            "messages of `model` and `tools` that are no delivery, or ask for more",
            0,
            "messages",
            "dropped",
        ),
        ("control_message", "a message of Celery's remote control, or its events", 4 * MIB, "bytes", "dropped"),
        ("not_control_messages", "messages of remote control that no Celery wrote", 0, "messages", "dropped"),
        ("remote_commands", "commands to workers that are not those for Flower", 0, "commands", "dropped"),
    ),
    *limit_rows(
        "Tools",
        ("tool_timeout", "`timeout` of a tool", 86_400, "seconds", "the process does not start, and says why"),
        (
            "tool_result_usual",
            "what a model is told of a result, unless `max_result` says otherwise",
            30_000,
            "characters",
            "beginning and end stay, and the model is told so",
        ),
        (
            "tool_result",
            "what a model is told of a result, whatever `max_result` says",
            256 * KIB,
            "characters",
            "beginning and end stay, and the model is told so",
        ),
        ("tool_result_least", "`max_result`, at least", 1_000, "characters", "refused where it is declared"),
        (
            "tool_result_media",
            "images and files of a result, as `data:` URLs",
            MIB,
            "characters",
            "`tool_error`, to the model",
        ),
        ("inline_results", "results of the inline tools of a turn", MIB, "characters", "`tool_error`, to the model"),
        ("tool_result_depth", "levels of objects and arrays in a result", 64, "levels", "`tool_error`"),
        ("tool_error", "text of an exception", 2_000, "characters", "cut"),
        ("own_servers", "MCP servers of an agent", 8, "servers", "422 `validation_error`"),
        ("own_headers", "headers of an agent's MCP server", 16, "headers", "422 `validation_error`"),
        ("own_tools", "tools of an agent's MCP server", 64, "tools", "the others are left out"),
        ("own_list", "definitions of these tools, as JSON", 64 * KIB, "bytes", "the others are left out"),
        (
            "own_lists",
            "lists of agents' MCP servers that a conversation keeps",
            32,
            "lists",
            "the others are asked for again",
        ),
        ("question_answer", "answer to a question, as JSON", 32 * KIB, "characters", "422 `too_long`"),
        ("progress_text", "text of a call's progress", 500, "characters", "cut"),
        ("progress", "progress of a call that watchers see in a second", 1, "events", "the newest is shown"),
        (
            "tool_output",
            "what a call prints into the log",
            64 * KIB,
            "bytes",
            "left out, and the log says how much",
            "PALAVER_TOOL_OUTPUT",
        ),
        (
            "tool_memory",
            "memory of a tool's process and of all that it started, during a call",
            4096,
            "MiB",
            "ended; `tool_error`",
            "PALAVER_TOOL_MEMORY",
        ),
        (
            "tool_kept_memory",
            "the most memory that a tool's process has ever had, after a call",
            1024,
            "MiB",
            "its process is replaced",
            "PALAVER_TOOL_KEPT_MEMORY",
        ),
    ),
    *limit_rows(
        "Conversations and runs",
        ("runs", "unfinished runs, about", 100_000, "runs", "429 `too_many_runs`", "PALAVER_MAX_RUNS"),
        ("queued_runs", "unfinished runs of a conversation", 100, "runs", "409 `queue_full`", "PALAVER_MAX_QUEUED"),
        (
            "entries",
            "entries of a conversation's log when a model is to be called",
            100_000,
            "entries",
            "409 `conversation_full`; a run that goes on ends `incomplete`",
            "PALAVER_MAX_ENTRIES",
        ),
        (
            "conversation_bytes",
            "data in a conversation's log when a model is to be called",
            256 * MIB,
            "bytes",
            "409 `conversation_full`; a run that goes on ends `incomplete`",
            "PALAVER_MAX_CONVERSATION_BYTES",
        ),
        (
            "voices",
            "people whose words a conversation, or a run, tells apart",
            200,
            "names of keys",
            "beyond that, no key counts as a second person",
        ),
        ("steering", "words that wait for a run's next model call", MIB, "bytes", "409 `steering_full`"),
    ),
    *limit_rows(
        "Events and watchers",
        ("feed", "events that a run's feed keeps, about", 20_000, "events", "older ones go first", "PALAVER_FEED_CAP"),
        ("feed_bytes", "events of over 4 KiB that a feed keeps", 64 * MIB, "bytes", "the older half goes"),
        ("delta", "text of one delta", 64 * KIB, "characters", "it comes as several"),
        (
            "watchers",
            "streams and long polls of an API process",
            5_000,
            "watchers",
            "503 `too_many_watchers`",
            "PALAVER_MAX_WATCHERS",
        ),
        (
            "watchers_per_key",
            "streams and long polls of keys of one name, where there are several names",
            3_000,
            "watchers",
            "503 `too_many_watchers`",
            "PALAVER_MAX_WATCHERS_PER_KEY",
        ),
        ("watcher_events", "events kept for a watcher that is slow", 256, "events", "it reads the feed again"),
        ("watcher_bytes", "events kept for a slow watcher, together", MIB, "bytes", "it reads the feed again"),
        ("page_events", "events that are read at once", 500, "events", "the rest comes with the next page"),
        (
            "page_bytes",
            "events that are read at once, together, but for the last",
            MIB,
            "bytes",
            "the rest comes with the next page",
        ),
        (
            "told_events",
            "events of a tenant that a feature has told of and that were not taken",
            10_000,
            "events",
            "the oldest are forgotten",
        ),
    ),
    *limit_rows(
        "Keys",
        ("api_keys", "keys of a tenant, about", 1_000, "keys", "409 `keys_full`"),
        ("api_key_scopes", "scopes that a request names for a key", 16, "scopes", "422 `validation_error`"),
        ("api_key_agents", "agents that a key is held to", 50, "agents", "422 `validation_error`"),
        ("api_key_life", "time until a key expires, if it does", 315_360_000, "seconds", "422 `validation_error`"),
        ("audit_entries", "acts that are kept of a tenant, about", 100_000, "acts", "the oldest go"),
        ("audit_facts", "what is kept of an act", 4 * KIB, "bytes", "lists are left out"),
        ("audit_page", "acts on a page", 500, "acts", "422 `validation_error`"),
        ("token_life", "time until a token expires", 900, "seconds", "422 `validation_error`"),
        ("token_subject", "the subject of a token", 128, "characters", "422 `validation_error`"),
        ("api_keys_known", "keys that an API process remembers", 10_000, "keys", "others are looked up again"),
    ),
    *limit_rows(
        "Store",
        ("metric_models", "models that metrics name, in a shard", 50, "models", "counted as `other`"),
        ("usage_days", "days of usage in a request", 92, "days", "422 `invalid_time`"),
        ("usage_ledgers", "days times tenants of usage that are added up", 2_000, "ledgers", "422 `invalid_time`"),
        ("usage_answer", "rows of usage in an answer", 10_000, "rows", "422 `validation_error`"),
        (
            "unlimited_answer",
            "answer of a model without `max_output_tokens`, as reserved under a cap in money",
            16_384,
            "tokens",
            "the cap may be overdrawn by the rest",
        ),
        ("usage_rows", "agents with a model and a key in the ledger of a day, in a shard", 1000, "rows", "one row"),
        ("script_page", "log entries that one script reads", 200, "entries", "the rest in the next page"),
        ("verdict", "what a step brings: its answer, results and calls", 4 * MIB, "bytes", "`response_too_large`"),
        (
            "script_page_bytes",
            "data after which a script reads or writes nothing more",
            MIB,
            "bytes",
            "the rest in the next",
        ),
    ),
)

LIMITS: Final[Mapping[str, Limit]] = MappingProxyType({limit.name: limit for limit in _ALL})
"""The limits of the core, by name."""

exceeded: Final[Counter[str]] = Counter()
"""For each limit, how often this process has met something beyond it since it began."""


@cache
def all_limits() -> Mapping[str, Limit]:
    """Return every limit, by name: also those of features."""
    return with_rows(LIMITS, "limits")


def limit_of(name: str) -> int:
    """The number of a limit; the default where a setting may change it. Raises KeyError: there is no such limit."""
    # Features are looked at for their own limits alone.
    return (LIMITS.get(name) or all_limits()[name]).value


def count_exceeded(name: str) -> None:
    """Count that something went beyond a limit. Call it where it is refused or cut.

    Raises:
        KeyError: there is no such limit.
    """
    limit_of(name)
    exceeded[name] += 1
