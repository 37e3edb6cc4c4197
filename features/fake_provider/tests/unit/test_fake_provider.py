"""The provider `fake` of the product: it answers whatever it can read, and judges nothing; its tests' twin does."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import httpx
import pytest

from features.fake_provider.apis import APIS
from features.fake_provider.server import FakeProvider
from tests.model_server import ModelServer
from tests.model_server.judge import read
from tests.pages import ROOT
from tests.unit.test_public_names import in_the_base_install
from tests.waiting import PATIENCE

CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
UNANSWERED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "model": "echo",
        "messages": [{"role": "assistant", "tool_calls": [CALL]}, {"role": "user", "content": "hi"}],
    },
    "/v1/messages": {
        "model": "echo",
        "max_tokens": 100,
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}]},
            {"role": "user", "content": "hi"},
        ],
    },
    "/v1/responses": {
        "model": "echo",
        "input": [
            {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
            {"role": "user", "content": "hi"},
        ],
    },
}
"""By path: a history that no real provider takes, as its call has no result."""


@pytest.mark.parametrize("path", [api.path for api in APIS])
def test_a_history_that_a_judge_refuses_is_answered_without_one(path: str) -> None:
    with FakeProvider.running() as provider:
        answer = httpx.post(f"{provider.url}{path}", json=UNANSWERED[path], timeout=PATIENCE)
        assert (answer.status_code, "echo: hi" in answer.text) == (200, True)
    with ModelServer.running() as server:
        assert httpx.post(f"{server.url}{path}", json=UNANSWERED[path], timeout=PATIENCE).status_code == 400


@pytest.mark.parametrize("path", [api.path for api in APIS])
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"1", b'"x"', b"null", b"{}", b'{"model": "echo", "messages": 1, "input": 1}',
             b'{"model": "echo", "messages": [], "input": {"a": 1}, "max_tokens": "many"}',
             b'{"model": "echo", "messages": [1], "input": [1], "max_tokens": 5}'],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_and_breaks_nothing(path: str, body: bytes) -> None:
    with FakeProvider.running() as provider:
        assert httpx.post(f"{provider.url}{path}", content=body, timeout=PATIENCE).status_code == 400
        assert httpx.post(f"{provider.url}{path}", json=UNANSWERED[path], timeout=PATIENCE).status_code == 200


def test_tries_are_counted_without_a_ledger() -> None:
    body = {"model": "echo+429-1", "messages": [{"role": "user", "content": "hi"}]}
    with FakeProvider.running() as provider:
        statuses = [
            httpx.post(f"{provider.base_url}/chat/completions", json=body, timeout=PATIENCE).status_code
            for _ in range(3)
        ]
        assert statuses == [429, 200, 200]
        assert httpx.get(f"{provider.url}/ledger", timeout=PATIENCE).status_code == 404


def test_a_conversation_has_one_digest_whichever_api_it_comes_by() -> None:
    chat = b'{"model": "m", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]}'
    messages = b'{"model": "m", "max_tokens": 9, "system": "s", "messages": [{"role": "user", "content": "hi"}]}'
    kept_nowhere = b'"store": false, "include": ["reasoning.encrypted_content"]'
    responses = b'{"model": "m", "instructions": "s", "input": "hi", %b}' % kept_nowhere
    chats = [
        read("/v1/chat/completions", chat),
        read("/v1/messages", messages, {"anthropic-version": "2023-06-01"}),
        read("/v1/responses", responses),
    ]
    assert len({each.digest for each in chats}) == 1


@pytest.mark.process
def test_the_product_imports_no_judge() -> None:
    program = "import sys, features.fake_provider.server; print([each for each in sys.modules if 'tests' in each[:5]])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_without_its_extra_it_says_what_to_install() -> None:
    done = in_the_base_install("import features.fake_provider.server")
    assert done.returncode == 1
    assert "palaver[testing]" in done.stderr.splitlines()[-1]
