"""The provider `fake`: a server for tests that answers, waits and fails as the name of the model says.

It speaks OpenAI's chat completions and Responses, and Anthropic's Messages.

    from palaver.features.fake_provider.server import FakeProvider

    with FakeProvider.running() as provider:
        run_my_agent(base_url=provider.base_url, model="tool-3+429-1@2")

or as a process: `python -m palaver.features.fake_provider --port 9101 [--api-key KEY]`. It answers whatever it can
read: it does not judge whether a real provider would have taken the request (an `observer` may).

The answer is decided by the model name and the messages alone, so any number of conversations may use one
server. A model name is directives joined by `+`, each `name[-arg…]`; a fault may end in `@k`: only at the
k-th model call of the turn (k = 1 + assistant messages after the last user message).

==================  ========================================================================================
answers
==================  ========================================================================================
echo                "echo: <last user text>", even after tool calls. The default, but after tool calls:
                    "done: <count> tool results, the last one: <text>"
say-N               N numbered words: "w1 w2 … wN"
tool-N              N model calls with one tool call each, then the answer
parallel-N[-M]      M model calls (1) with N tool calls each, then the answer
steps-A-B-…         a model call with A tool calls, one with B, …; tool, parallel, steps add up in order
use-NAME            call this tool (default: the first offered); 400 if it is not offered
use-each            rotate over the tools offered
json[-N]            JSON that fits the schema of `response_format`; up to the N-th user message
                    `{"misfit": true}`
as-NAME             nothing: for clients that go by a model's name, such as `as-gpt-5+reasoning`
==================  ========================================================================================

==================  ========================================================================================
pace
==================  ========================================================================================
tokens-N            the answer has exactly N words, cut or filled up with w<i>
ttft-MS             milliseconds before the first byte
rate-R              R tokens a second (default: at once); N tokens take N/R seconds, streamed or not
chunk-K             K tokens an event (1)
args-split[-K]      tool arguments streamed in fragments of K characters (5)
reasoning[-N]       N tokens (8) of `reasoning_content` before the answer
stale-N             Responses: from the N-th model call of the turn on, reasoning of the calls before it cannot be
                    read any more, to an observer that looks at it
window-N            400 context_length_exceeded when the prompt has more than N tokens (its JSON size / 4)
room-N              the same, and an answer that does not fit in beside the prompt is cut off: "length"
==================  ========================================================================================

==================  ========================================================================================
providers, which want something back unchanged with what they said
==================  ========================================================================================
gemini              `extra_content` on the first call of each message: a thought signature
deepseek, kimi      `reasoning_content` on each message with calls
openrouter          `reasoning_details`, which come in pieces, as one signed block and one that is encrypted
groq                wants nothing
==================  ========================================================================================

==================  ========================================================================================
faults
==================  ========================================================================================
STATUS[-N[-S]]      any of 400 … 599, such as 401, 402, 429, 503, 529; S: `Retry-After: S` (seconds)
429date[-N[-S]]     429 with Retry-After as an HTTP date, S seconds ahead, rounded up
429ms[-N[-MS]]      429 with Retry-After-Ms
quota, budget       429 insufficient_quota; 400 "Budget has been exceeded"
context, policy     400 context_length_exceeded; 400 content_policy_violation
filter              three words, then finish_reason content_filter
hang                accepts, never answers
reset               the connection is reset at once
stall[-N[-K]]       K events (3), then silence
cut[-N[-K]]         K events, then the connection drops
short[-N[-K]]       K events, then an orderly end without finish_reason and [DONE]
errorchunk[-N[-K]]  K events, then `data: {"error": …}` and the end
overloaded[-N[-K]]  the same, with the error of a provider that has too much to do
badjson, html       200 with broken JSON; 200 with an HTML page
empty               200 without choices
badargs[-N]         tool arguments that are not JSON
unknowntool[-N]     calls a tool that does not exist
pause[-N[-K]]       K words (3), then an ordinary end; see POST /v1/messages
raw[-N]             what the last user message gives as `[[raw {…}]]`, see below
huge-BYTES          an answer of so many bytes
==================  ========================================================================================

Every fault but huge takes -N: how many tries of the same request (same model, messages and X-Palaver-Run
header) meet it. Left out or `*` (as in `cut-*-5`), every try does. Several faults follow each other:
`429-1+500-2` is 429, 500, 500, fine. For badargs, unknowntool and pause, N counts model calls of the turn: these
are answered, not retried. K counts SSE events, of which the first holds the role only; without streaming,
half of the document is sent.

`[[raw {"status": 503, "headers": {"Retry-After": "2"}, "body": {"error": "busy"}}]]` makes any answer: 200,
no more headers and an empty body where it says nothing. A body that is no string is sent as JSON; the
content type is JSON's unless the headers say otherwise. `[[raw {"wire": "HTTP/1.1 200 OK\\r\\n", "then":
"reset"}]]` puts bytes on the wire in place of an HTTP answer, one for each character (up to U+00FF); then the
connection is closed ("close", which is the default), reset, or left open ("hang").

Tool arguments are made from the tool's JSON schema: strings "1 + i", integers i, numbers 0.01 * i, for the
i-th call of the turn; `[[args {"path": "/tmp"}]]` in the last user message gives them instead, to every
call and to the letter. Call ids are `call_<turn>_<step>_<i>`. Without tools in the request (or with tool_choice
"none") the answer comes at once; with tool_choice "required", or a tool's name, it never comes: every call of the
model has a tool call. `max_tokens` cuts the answer with finish_reason "length".

`POST /v1/messages` is the same model behind the other API: the same names, answers and faults. What a model thinks
(`reasoning`) is a signed block there, with a hidden one behind it. Errors, stop reasons and counts are that API's: with
breakpoints, half of a prompt is read from the cache and a quarter is written. `pause` is a search of the provider's own
(`server_tool_use`) behind the words, and stop reason `pause_turn`: the turn goes on once the search has come back. The
end of `room` is called `model_context_window_exceeded`.

`POST /v1/responses` is the same model once more. What it thinks is an item of reasoning, with a summary and encrypted.

`GET /v1/models` shows examples, `GET /healthz` says that it is up.
"""

from __future__ import annotations

from typing import Final

from palaver.feature import Feature

FEATURE: Final = Feature(__name__)
