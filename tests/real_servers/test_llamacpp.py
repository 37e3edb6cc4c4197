"""llama.cpp's server with a tiny model of random weights: what it says is noise, how it says it is its own.

Its grammars make even noise JSON of a schema, or a call of a tool.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from features.stack.ports import HOST, free_port
from tests.checkers import CHECKERS
from tests.process.cluster import Cluster, stream
from tests.real_servers.serving import needed, run_there, serving
from tests.real_servers.tiny_model import CALL, END, FIRST_BYTE
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.chaos, needed("LLAMA.CPP", "gguf-dump")]

HERE: Final = Path(__file__).parent
PROVIDERS: Final = """
[providers.llamacpp]
base_url = "{url}/v1"
max_in_flight = 4

[providers.llamacpp-messages]
protocol = "anthropic"
base_url = "{url}/v1"
max_output_tokens = 100000

[providers.llamacpp-responses]
protocol = "responses"
base_url = "{url}/v1"
"""
NUMBERS: Final = {"end": END, "call": CALL, **{letter: FIRST_BYTE + ord(letter) for letter in "abc"}}
"""Of tokens."""
AGAIN: Final = {"rules": {"provider_error": {"attempts": 30, "first": 0.01, "max_delay": 0.05}}}
"""An end may come first, and such an answer is empty."""
SCHEMA: Final = {
    "type": "object",
    "properties": {"total": {"type": "integer"}, "sure": {"type": "boolean"}},
    "required": ["total", "sure"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    folder = tmp_path_factory.mktemp("llamacpp")
    model, url = folder / "tiny.gguf", f"http://{HOST}:{(port := free_port())}"
    run_there("python", str(HERE / "tiny_model.py"), str(model))
    command = ["python", str(HERE / "llama_server.py"), str(model), str(port)]
    with serving("llamacpp", command, healthy=f"{url}/health", log_path=folder / "llamacpp.log"):
        yield url


@pytest.fixture(scope="module")
def _cluster(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Palaver whose providers are that server."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), environment={"PALAVER_TOOLS": "tests.real_servers.tools"})
    # It keeps no ledger of what it is asked.
    cluster.invariants = CHECKERS.keys() - {"I13"}
    with cluster.providers_path.open("a") as providers:
        providers.write(PROVIDERS.format(url=server))
    with cluster:
        yield cluster


def likely(**bias: int) -> dict[str, Any]:
    """An agent's option that makes tokens likelier than noise is, or less."""
    return {"extra_body": {"logit_bias": [[NUMBERS[name], number] for name, number in bias.items()]}}


def busy(server: str) -> int:
    """How many answers it is working on."""
    return sum(slot["is_processing"] for slot in httpx.get(f"{server}/slots", timeout=10).json())


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
def test_a_limit_and_what_it_took(cluster: Cluster, streamed: bool) -> None:
    agent = {"stream": streamed, "max_output_tokens": 4000, **likely(end=-100)}
    run_id = cluster.submit("llamacpp/tiny", agent=agent)
    events = [event for _, event in stream(cluster.http, f"/v1/runs/{run_id}/events")]
    run = cluster.ended(run_id)
    assert (run.status, run.stop_reason, run.usage.output_tokens) == ("incomplete", "max_tokens", 4000), run.error
    assert run.usage.input_tokens > len("hello")
    told = "".join(event["data"]["text"] for event in events if event["event"] == "message.delta")
    assert told == (run.output if streamed else "")


def test_an_end_of_its_own(cluster: Cluster) -> None:
    agent = {"retry": AGAIN, **likely(a=8, b=8, c=8, end=8)}
    run = cluster.ended(cluster.submit("llamacpp/tiny", agent=agent))
    assert (run.status, run.stop_reason) == ("completed", "end_turn"), run.error
    assert run.output


def test_a_word_to_stop_at(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit("llamacpp/tiny", agent={"stop": ["bc"], **likely(a=8, b=8, c=8, end=-100)}))
    assert run.status == "completed", run.error
    assert "bc" not in (run.output or "")


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
def test_an_answer_that_has_to_be_json(cluster: Cluster, streamed: bool) -> None:
    wanted = {"type": "json_schema", "name": "sum", "schema": SCHEMA}
    run = cluster.ended(cluster.submit("llamacpp/tiny", agent={"response_format": wanted, "stream": streamed}))
    assert run.status == "completed", run.error
    assert isinstance(run.structured_output, dict)
    assert {name: type(value) for name, value in run.structured_output.items()} == {"total": int, "sure": bool}


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("route", ["llamacpp", "llamacpp-messages", "llamacpp-responses"])
def test_a_tool_loop(cluster: Cluster, route: str, streamed: bool) -> None:
    """Each of its calls is one of the tool, with arguments of the schema."""
    chances = likely(call=8, end=7)
    agent = {"tool_choice": "required", "stream": streamed, "max_steps": 3, "retry": AGAIN, **chances}
    run = cluster.ended(cluster.submit(f"{route}/tiny", tools=["dim"], agent=agent))
    assert run.stop_reason in ("end_turn", "max_steps"), run.error
    assert run.usage.model_calls >= 2
    messages = cluster.http.get(f"/v1/conversations/{run.conversation_id}/messages").json()["data"]
    results = [message["content"] for message in messages if message["role"] == "tool"]
    assert results
    # What the last step allowed asks for is no longer done.
    assert all(re.fullmatch("(on|off), [0-9]|.*limit.*", result) for result in results), results


def test_a_conversation_that_is_too_long(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit("llamacpp/tiny", "x" * 250_000), within=60)
    assert run.error is not None
    assert run.error["class"] == "context_window", run.error


def test_a_cancel_stops_it(cluster: Cluster, server: str) -> None:
    run_id = cluster.submit("llamacpp/tiny", agent=likely(end=-100))
    cluster.saw(run_id, "message.delta")
    assert busy(server) == 1
    assert cluster.cancel(run_id) in (200, 202)
    run = cluster.ended(run_id)
    assert run.status == "cancelled"
    assert run.output
    eventually(lambda: busy(server) == 0)
