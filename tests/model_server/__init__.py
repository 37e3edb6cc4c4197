"""The fake provider with a judge: it refuses what real providers refuse, and keeps a ledger of what it was asked.

    with ModelServer.running() as server:
        run_my_agent(base_url=server.base_url, model="tool-3+429-1@2")
        assert [entry.status for entry in server.ledger()] == [200, 429, 200, 200, 200]

or as a process: `python -m tests.model_server --port 9101 [--ledger FILE] [--api-key KEY]`. Answers are those of
`features.fake_provider`. What is judged:

A history that a real provider refuses gets 400: a tool call without a result or with two, a result without a call, call
ids twice in one message, no messages, unknown roles, content of a wrong type. So do more than four prompt-cache
breakpoints, and one on a message or on an empty text in place of a block with text. Providers that want something back
unchanged (`gemini`, `deepseek`, …) refuse a history without it; `groq` refuses every field that is not its own.

`POST /v1/messages` refuses fields that it does not know, no max_tokens, roles that do not alternate, results that are
not complete or not first, ids of calls that come twice, thoughts that are lost, changed or out of order, texts without
a visible character, a breakpoint on a failed result, an assistant's message at the end.

`POST /v1/responses` refuses what is to be stored (`store` has to be false), fields that it does not know, calls without
an output or with two, outputs without a call, ids of calls that come twice, a `max_output_tokens` below 16, and
reasoning that does not come back, as it was, before the calls that it led to. With `stale-N`, from the N-th model call
of the turn on, reasoning of the calls before it gets 400 invalid_encrypted_content, and is not wanted back.

`GET /ledger?run=…&outcome=…&after=N` is a page of what was asked and how it ended (see LedgerEntry), `DELETE /ledger`
starts it anew.
"""

from __future__ import annotations

from tests.model_server.ledger import LedgerEntry, read_ledger
from tests.model_server.server import ModelServer

__all__ = ["LedgerEntry", "ModelServer", "read_ledger"]
