"""Thoughts that have to come back as they were."""

from __future__ import annotations

from typing import Any

from features.fake_provider.requests import InvalidRequest
from features.fake_provider.thoughts import CALL, MADE, redacted, signature, thinker_of


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


def thinks(call_id: str, model: str) -> bool:
    """Whether a thought of this model came before the call."""
    return call_id.startswith(CALL + thinker_of(model))
