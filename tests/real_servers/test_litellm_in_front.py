"""A LiteLLM proxy in front of Palaver's ``/openai/v1``, and OpenAI's own client in front of that: who has such a proxy
for models has agents by it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import openai
import pytest

from features.stack.ports import HOST, free_port
from tests.process.cluster import Cluster
from tests.real_servers.serving import needed, serving
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.chaos, needed("LITELLM", "litellm")]

CONFIG: Final = Path(__file__).with_name("litellm_in_front.yaml")
KEYS: Final = {"PROXY_KEY": "sk-of-the-proxy", "PALAVER_API_KEY": "any"}
ALONE: Final = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}
"""It asks nobody for prices."""
WORDS: Final = " ".join(f"w{number}" for number in range(1, 31))
HELLO: Final[Any] = [{"role": "user", "content": "hello"}]
LOOK: Final[Any] = {"name": "look", "parameters": {"type": "object", "properties": {}}}


@pytest.fixture(scope="module")
def proxy(_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a proxy in front of the API."""
    url = f"http://{HOST}:{(port := free_port())}"
    behind = {"PALAVER_OPENAI": f"{_cluster.stack.url}/openai/v1"}
    with serving(
        "litellm",
        ["litellm", "--config", str(CONFIG), "--host", HOST, "--port", str(port)],
        healthy=f"{url}/health/liveliness",
        log_path=tmp_path_factory.mktemp("in_front") / "litellm.log",
        environment={**ALONE, **KEYS, **behind},
    ):
        yield url


@pytest.fixture
def client(cluster: Cluster, proxy: str) -> Iterator[openai.OpenAI]:
    """OpenAI's client at the proxy, and an agent behind it."""
    agent = {"model": "fake/tool-1+use-each+say-30+rate-100", "tools": ["calculator"]}
    assert cluster.http.put("/v1/agents/support", json=agent).status_code in (200, 201)
    with openai.OpenAI(base_url=f"{proxy}/v1", api_key=KEYS["PROXY_KEY"], max_retries=0, timeout=90) as made:
        yield made


def newest(cluster: Cluster) -> str:
    """The run that was begun last."""
    run_id = str(cluster.http.get("/v1/runs", params={"limit": 1}).json()["data"][0]["id"])
    cluster.submitted.append(run_id)
    return run_id


def test_a_chat_whole_and_streamed(cluster: Cluster, client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="support", messages=HELLO)
    assert whole.choices[0].message.content == WORDS == cluster.ended(newest(cluster)).output
    assert whole.usage is not None
    assert whole.usage.total_tokens > 0
    chunks = list(client.chat.completions.create(model="support", messages=HELLO, stream=True))
    said = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(said) == WORDS == cluster.ended(newest(cluster)).output
    assert len([word for word in said if word]) > 3, "it came in one piece"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"


def test_a_call_of_the_client_in_a_chat(cluster: Cluster, client: openai.OpenAI) -> None:
    tools: Any = [{"type": "function", "function": LOOK}]
    first = client.chat.completions.create(model="palaver/fake/tool-1", messages=HELLO, tools=tools)
    assert first.choices[0].message.tool_calls
    (call,) = first.choices[0].message.tool_calls
    messages = [
        *HELLO,
        first.choices[0].message.to_dict(),
        {"role": "tool", "tool_call_id": call.id, "content": "seen"},
    ]
    second = client.chat.completions.create(model="palaver/fake/tool-1", messages=messages, tools=tools)
    assert "seen" in (second.choices[0].message.content or "")


def test_a_response_whole_and_streamed(cluster: Cluster, client: openai.OpenAI) -> None:
    whole = client.responses.create(model="support", input="hello")
    assert whole.output_text == WORDS == cluster.ended(newest(cluster)).output
    assert [item.type for item in whole.output] == ["mcp_call", "message"]
    events = list(client.responses.create(model="support", input="hello", stream=True))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == WORDS == cluster.ended(newest(cluster)).output
    assert len(deltas) > 3, "it came in one piece"
    assert events[-1].type == "response.completed"


def test_a_response_goes_on_behind_another(cluster: Cluster, client: openai.OpenAI) -> None:
    first = client.responses.create(model="support", input="hello")
    again = client.responses.create(model="support", input="and then?", previous_response_id=first.id)
    run = cluster.ended(newest(cluster))
    assert again.output_text == run.output
    messages = cluster.http.get(f"/v1/conversations/{run.conversation_id}/messages").json()["data"]
    assert [message["content"] for message in messages if message["role"] == "user"] == ["hello", "and then?"]


def test_a_response_in_the_background(cluster: Cluster, client: openai.OpenAI) -> None:
    begun = client.responses.create(model="support", input="hello", background=True)
    assert begun.status in ("queued", "in_progress")
    cluster.ended(newest(cluster))
    assert client.responses.retrieve(begun.id).output_text == WORDS
    hanging = client.responses.create(model="palaver/fake/hang", input="hello", background=True)
    run_id = newest(cluster)
    cluster.reached(run_id, "running")
    assert client.responses.cancel(hanging.id).status == "cancelled"
    assert cluster.ended(run_id).status == "cancelled"


def refused(kind: type[openai.APIStatusError], client: openai.OpenAI, model: str, **more: Any) -> list[str]:
    """What is said of a request, as a chat and as a response."""
    said = []
    with pytest.raises(kind) as error:
        client.chat.completions.create(model=model, messages=HELLO, **more)
    said.append(str(error.value))
    with pytest.raises(kind) as error:
        client.responses.create(model=model, input="hello", **more)
    return [*said, str(error.value)]


def test_errors_keep_their_kind(cluster: Cluster, client: openai.OpenAI) -> None:
    for said in refused(openai.NotFoundError, client, "nobody"):
        assert "agent is not on the server" in said
    search: Any = [{"type": "web_search"}]
    with pytest.raises(openai.BadRequestError, match="web_search"):
        client.responses.create(model="support", input="hello", tools=search)


@pytest.mark.parametrize(("fault", "kind"), [("quota", openai.RateLimitError), ("context", openai.BadRequestError)])
def test_a_failure_of_the_model_behind_a_chat(
    cluster: Cluster, client: openai.OpenAI, fault: str, kind: type[openai.APIStatusError]
) -> None:
    with pytest.raises(kind):
        client.chat.completions.create(model=f"palaver/fake/{fault}", messages=HELLO)


def test_who_leaves_a_chat_ends_the_run_behind_the_proxy(cluster: Cluster, client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(model="palaver/fake/say-400+rate-20", messages=HELLO, stream=True)
    next(iter(stream))
    run_id = newest(cluster)
    stream.close()
    assert eventually(lambda: cluster.run(run_id).status == "cancelled", within=30)
