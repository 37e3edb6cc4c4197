"""Where the API is, and what the package offers."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator

import pytest

import palaver.client
from palaver.client import (
    AsyncPalaver,
    Palaver,
)
from palaver.errors import ConfigurationError
from tests.scripted_api import ScriptedAPI, answer


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    with ScriptedAPI() as server:
        yield server


class TestAddress:
    def test_the_environment_says_where_and_who(self, api: ScriptedAPI, monkeypatch: pytest.MonkeyPatch) -> None:
        api.on("GET", "/v1/queues", answer({}))
        monkeypatch.setenv("PALAVER_URL", f"{api.url}/")
        monkeypatch.setenv("PALAVER_API_KEY", "secret\n")
        with Palaver() as client:
            assert client.base_url == api.url
            client.queues()
        assert api.seen[0].headers["authorization"] == "Bearer secret"

    def test_arguments_go_first_and_a_path_is_kept(self, api: ScriptedAPI, monkeypatch: pytest.MonkeyPatch) -> None:
        api.on("GET", "/prefix/v1/queues", answer({}))
        monkeypatch.setenv("PALAVER_URL", "http://127.0.0.1:1")
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        with Palaver(f"{api.url}/prefix/") as client:
            assert client.queues() == {}

    def test_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("PALAVER_URL", raising=False)
        with Palaver() as client:
            assert client.base_url == "http://127.0.0.1:8080"

    @pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://x", "http://", "http://[", "x y"])
    def test_no_url(self, url: str) -> None:
        with pytest.raises(ConfigurationError, match="URL"):
            Palaver(url)

    def test_no_key(self) -> None:
        with pytest.raises(ConfigurationError, match="key"):
            Palaver(api_key="schlüssel")


METHODS = (
    "agent", "agents", "answer", "append", "approve", "ask", "batch", "batch_results", "batches", "bulk", "cancel",
    "cancel_batch", "change_conversation", "change_webhook", "condense", "conversation", "conversation_events",
    "conversations", "count", "count_conversations", "create_batch", "create_conversation", "create_key",
    "create_token", "create_webhook", "delete", "delete_agent", "delete_batch", "delete_conversation",
    "delete_schedule", "delete_webhook", "deliveries", "deny", "erase_tenant", "events", "export", "export_tenant",
    "fork", "get", "keys", "list", "messages", "models", "pause", "pause_schedule", "put_agent", "put_schedule",
    "queues", "replay_deliveries", "respond", "resume", "resume_schedule", "retry", "retry_batch", "revoke_key",
    "rotate_key", "rotate_webhook", "run", "schedule", "schedules", "secret_names", "send", "set_caps", "set_secrets",
    "statistics", "steer", "submit", "tenant", "tenants", "trigger_schedule", "usage", "wait", "webhook", "webhooks",
    "withdraw",
)  # fmt: skip


def test_the_public_surface() -> None:
    assert palaver.client.__all__ == [
        "APIError", "AsyncPalaver", "BulkResult", "ClientError", "Conflict", "ConnectionFailed", "Exported", "NotFound",
        "Palaver", "RunFailed", "TooManyRequests", "Unauthorized", "Unavailable", "Unprocessable", "WaitTimeout",
    ]  # fmt: skip
    assert all(hasattr(palaver.client, name) for name in palaver.client.__all__)


@pytest.mark.parametrize("client", [Palaver, AsyncPalaver])
def test_both_clients_have_the_same_methods(client: type) -> None:
    public = {name for name in dir(client) if not name.startswith("_")}
    assert public - {"base_url", "close", "aclose"} == set(METHODS)


@pytest.mark.parametrize("method", METHODS)
def test_both_clients_take_the_same_arguments_and_say_what_they_do(method: str) -> None:
    blocking, on_a_loop = getattr(Palaver, method), getattr(AsyncPalaver, method)
    assert inspect.signature(blocking).parameters == inspect.signature(on_a_loop).parameters
    assert blocking.__doc__ == on_a_loop.__doc__
    assert "Raises" in blocking.__doc__ or "Raises as" in blocking.__doc__


@pytest.mark.parametrize(
    ("method", "argument", "hint"),
    [
        ("submit", "modle", "; did you mean model?"),
        ("run", "tool", "; did you mean tools?"),
        ("create_conversation", "titel", "; did you mean title?"),
        ("list", "older_than", ""),
        ("bulk", "stauts", "; did you mean status?"),
        ("export", "limits", ""),
    ],
)
def test_an_argument_that_there_is_not(method: str, argument: str, hint: str) -> None:
    said = {"bulk": ("cancel",), "submit": ("hi",), "run": ("hi",)}.get(method, ())
    with Palaver("http://127.0.0.1:1") as client, pytest.raises(TypeError) as raised:
        next(getattr(client, method)(*said, **{argument: "x"}))
    assert str(raised.value) == f"there is no argument {argument!r}{hint}"


def test_type_checkers_know_the_arguments() -> None:
    """mypy reads this: an ignored error that is none fails `make check`."""
    with Palaver("http://127.0.0.1:1") as client:
        with pytest.raises(TypeError):
            client.submit("hi", modle="a/b")  # type: ignore[call-arg]
        with pytest.raises(ValueError, match="without a model"):
            client.submit("hi", max_steps="3")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            next(client.list(older_than=3))  # type: ignore[call-arg]


@pytest.mark.process
def test_the_sdk_and_the_cli_need_no_server_packages() -> None:
    program = (
        "import sys, palaver.client, palaver.cli.app;"
        "print(sorted({m.split('.')[0] for m in sys.modules}"
        " & {'redis', 'celery', 'kombu', 'starlette', 'aiohttp'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
