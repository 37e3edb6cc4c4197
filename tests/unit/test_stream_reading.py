"""Reading of many streams at a time: what comes of one in the meantime is read together, and nothing of it is lost."""

from __future__ import annotations

import pytest

from palaver.config.providers import Provider
from palaver.schemas.models import AgentSpec
from tests.model_server import ModelServer
from workers.models import call_clock
from workers.models.call_clock import CallProgress
from workers.models.model import ModelPort
from workers.protocols import CHAT_COMPLETIONS

TOKENS = 60


async def test_of_many_streams_several_tokens_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # One counts as a thousand.
    monkeypatch.setattr(call_clock, "_REST_PER_STREAM", 1000 * call_clock._REST_PER_STREAM)
    name, shown = f"tokens-{TOKENS}+rate-200", list[str]()
    with ModelServer.running() as server:
        port = ModelPort({"fake": Provider(base_url=server.base_url)})
        reply = await port.complete(
            AgentSpec(model=f"fake/{name}"),
            b'{"model":"%b","stream":true,"messages":[{"role":"user","content":"hi"}]}' % name.encode(),
            on_begin=lambda: None,
            show=lambda text, thoughts: shown.append(text),
            time_left=60,
            request_id="run_1:1:1",
            reader=CHAT_COMPLETIONS.reader(max_calls=1),
            progress=CallProgress(),
        )
        await port.close()
    assert "".join(shown) == reply.content
    assert len(reply.content.split()) == TOKENS
    assert len(shown) < TOKENS / 4
