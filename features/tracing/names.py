"""The names in our traces.

Those of ``gen_ai`` and ``error`` are of OpenTelemetry's semantic conventions for generative AI as the package
opentelemetry-semantic-conventions 0.66b2 has them (schema 1.44.0). None of them is stable yet: a newer version is taken
here and nowhere else, and in docs/how-to/trace.md. Those of ``palaver`` are our own.
"""

from __future__ import annotations

from typing import Final

INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"
"""The values of ``OPERATION``, and the first word of the names of spans."""

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
CONVERSATION: Final = "gen_ai.conversation.id"
AGENT: Final = "gen_ai.agent.name"
TOOL: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
CALL: Final = "gen_ai.tool.call.id"
ERROR: Final = "error.type"

INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
ARGUMENTS: Final = "gen_ai.tool.call.arguments"
RESULT: Final = "gen_ai.tool.call.result"
"""Content: only with PALAVER_TRACE_CONTENT."""

RUN: Final = "palaver.run.id"
STATUS: Final = "palaver.run.status"
STOP_REASON: Final = "palaver.run.stop_reason"
MODEL_CALLS: Final = "palaver.run.model_calls"
TOOL_CALLS: Final = "palaver.run.tool_calls"
STEP: Final = "palaver.step"
ATTEMPT: Final = "palaver.attempt"
OUTCOME: Final = "palaver.outcome"
WORKER: Final = "palaver.worker"
CODE: Final = "palaver.error.code"
EVENT: Final = "palaver."
"""In front of the fields of an event of a run, such as ``palaver.delay``."""
