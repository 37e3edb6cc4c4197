"""Thoughts of a model in APIs that want them back as they were: signed and hidden in part in Anthropic's Messages,
encrypted in OpenAI's Responses.

It is a function of what the model said: a thought is signed, and the id of a call says whether one came before it. So
it can be told whether everything came back, without a memory of earlier requests.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import orjson

MADE = "toolu_"
CALL = "call_"
SEARCH = "srvtoolu_"
CALLER = {"type": "direct"}
"""The model itself calls a tool, and no program of its."""
PLAIN = "plain"
"""Behind that in an id: no thought came before the call."""


def signature(thinking: str) -> str:
    """The seal on a thought."""
    return base64.b64encode(hashlib.sha256(b"thinking " + thinking.encode()).digest()).decode()


def redacted(thinking: str) -> str:
    """The hidden part behind a thought."""
    return base64.b64encode(hashlib.sha256(b"redacted " + thinking.encode()).digest()).decode()


def search(digest: str, number: int) -> dict[str, Any]:
    """A search of the provider itself, with a tool of its own: the model pauses until it gets this back."""
    made = f"{SEARCH}{digest[:16]}_{number}"
    return {
        "type": "server_tool_use",
        "id": made,
        "name": "web_search",
        "input": {"query": f"about {made}"},
        "caller": CALLER,
    }


def call_id(model: str, digest: str, sent_id: str, *, thinks: bool) -> str:
    """An id that no other answer has."""
    return f"{MADE}{thinker_of(model) if thinks else PLAIN}_{digest[:16]}_{sent_id.rpartition('_')[2]}"


def thinker_of(model: str) -> str:
    """Behind `MADE` in an id: whose thought came before the call. A model does not want those of others."""
    return hashlib.sha256(model.encode()).hexdigest()[:8]


def encrypted(model: str, identity: str, summary: object) -> str:
    """The encrypted part of an item of reasoning: its model alone can read it, and all of the item is sealed by it."""
    sealed = orjson.dumps([model, identity, summary], option=orjson.OPT_SORT_KEYS)
    return "gAAAA" + base64.b64encode(hashlib.sha256(b"encrypted " + sealed).digest()).decode()


def response_call_id(model: str, digest: str, index: int, *, thinks: bool) -> str:
    """An id that no other answer has, as Responses has them."""
    return f"{CALL}{thinker_of(model) if thinks else digest[16:24]}{digest[:14]}{index:02x}"
