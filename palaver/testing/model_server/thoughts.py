"""What a model thinks in APIs that want it back as it was: signed and hidden in part in Anthropic's Messages, encrypted
in OpenAI's Responses.

It is a function of what the model said: a thought is signed, and the id of a call says whether one came before it. So
it can be told whether everything came back, without a memory of earlier requests.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import orjson

from palaver.testing.model_server.history import InvalidRequest

MADE = "toolu_"
CALL = "call_"
SEARCH = "srvtoolu_"
PLAIN = "plain"
"""Behind that in an id: no thought came before the call."""


def signature(thinking: str) -> str:
    """The seal on a thought."""
    return base64.b64encode(hashlib.sha256(b"thinking " + thinking.encode()).digest()).decode()


def redacted(thinking: str) -> str:
    """What is hidden behind a thought."""
    return base64.b64encode(hashlib.sha256(b"redacted " + thinking.encode()).digest()).decode()


def search(digest: str, number: int) -> dict[str, Any]:
    """What the provider looks for itself, with a tool of its own: the model pauses until it gets this back."""
    made = f"{SEARCH}{digest[:16]}_{number}"
    return {"type": "server_tool_use", "id": made, "name": "web_search", "input": {"query": f"about {made}"}}


def call_id(model: str, digest: str, given: str, *, thinks: bool) -> str:
    """An id that no other answer has."""
    return f"{MADE}{thinker_of(model) if thinks else PLAIN}_{digest[:16]}_{given.rpartition('_')[2]}"


def thinker_of(model: str) -> str:
    """Behind `MADE` in an id: whose thought came before the call. A model does not want those of others."""
    return hashlib.sha256(model.encode()).hexdigest()[:8]


def check_thoughts(blocks: list[dict[str, Any]], thinker: str, where: str) -> None:
    """Thoughts come back unmodified, in their order, and with every call that they came before."""
    changed = (
        f"{where}.content: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
        "modified. These blocks must remain as they were in the original response."
    )
    if blocks[-1]["type"] in ("thinking", "redacted_thinking"):
        raise InvalidRequest(f"{where}: The final block in an assistant message cannot be `thinking`.")
    for place, block in enumerate(blocks):
        if block["type"] == "thinking":
            if block.get("signature") != signature(block.get("thinking", "")):
                raise InvalidRequest(f"{where}.content.{place}: Invalid `signature` in `thinking` block")
            hidden = blocks[place + 1] if place + 1 < len(blocks) else {}
            begins = not place or blocks[place - 1]["type"] == "server_tool_use"
            if not begins or hidden.get("data") != redacted(block["thinking"]):
                raise InvalidRequest(changed)
        elif block["type"] == "redacted_thinking" and (not place or blocks[place - 1]["type"] != "thinking"):
            raise InvalidRequest(changed)
        elif block["type"] == "server_tool_use" and block["input"] != {"query": f"about {block['id']}"}:
            raise InvalidRequest(f"{where}.content.{place}: `server_tool_use` blocks must remain as they were")
    made = [block["id"].removeprefix(MADE) for block in blocks if block["type"] == "tool_use"]
    if any(each.startswith(thinker) for each in made) and blocks[0]["type"] != "thinking":
        raise InvalidRequest(
            f"{where}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{blocks[0]['type']}`."
        )


def encrypted(model: str, identity: str, summary: object) -> str:
    """What is encrypted of an item of reasoning: its model alone can read it, and all of the item is sealed by it."""
    sealed = orjson.dumps([model, identity, summary], option=orjson.OPT_SORT_KEYS)
    return "gAAAA" + base64.b64encode(hashlib.sha256(b"encrypted " + sealed).digest()).decode()


def response_call_id(model: str, digest: str, index: int, *, thinks: bool) -> str:
    """An id that no other answer has, as Responses has them."""
    return f"{CALL}{thinker_of(model) if thinks else digest[16:24]}{digest[:14]}{index:02x}"


def thinks(call_id: str, model: str) -> bool:
    """Whether a thought of this model came before the call."""
    return call_id.startswith(CALL + thinker_of(model))
