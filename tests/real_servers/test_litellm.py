"""A LiteLLM proxy between Palaver and the model server: over chat completions, Anthropic's Messages and Responses.

It translates between the protocols in its own way, and what it makes of faults is what its users meet. The model server
behind it is as strict as ever: the checks after each test fail on any request that it refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from features.stack.child import ChildCommand
from features.stack.ports import HOST, free_port
from palaver.schemas.models import Run
from tests.checkers import CHECKERS
from tests.process.cluster import Cluster, stream
from tests.real_servers.serving import needed, serving, started_again
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.chaos, needed("LITELLM", "litellm")]

CONFIG: Final = Path(__file__).with_name("litellm.yaml")
ALONE: Final = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}
"""It asks nobody for prices."""
PROVIDERS: Final = """
[providers.proxy]
base_url = "{url}/v1"
api_key_env = "PROXY_KEY"

[providers.proxy-messages]
protocol = "anthropic"
base_url = "{url}/v1"
api_key_env = "PROXY_KEY"
thinking = "summarized"
max_output_tokens = 4096

[providers.proxy-responses]
protocol = "responses"
base_url = "{url}/v1"
api_key_env = "PROXY_KEY"
thinking = "summarized"

[providers.locked]
base_url = "{url}/v1"
api_key_env = "WRONG_KEY"

[providers.locked-messages]
protocol = "anthropic"
base_url = "{url}/v1"
api_key_env = "WRONG_KEY"
max_output_tokens = 4096
"""
KEYS: Final = {"PROXY_KEY": "sk-of-the-proxy", "WRONG_KEY": "sk-of-nobody"}
ROUTES: Final = ("proxy/gpt", "proxy/claude", "proxy-messages/gpt", "proxy-messages/claude", "proxy-responses/gpt")
"""The protocol that Palaver speaks to it, and the one that it speaks to the model server."""
STREAMED: Final = (*ROUTES[:4], "proxy-responses/known")
SLOW: Final = "say-400+rate-20"
CUT: Final = "say-30+rate-20+cut-1-20"
LOOP: Final = "steps-1-2-1"
TOOLS: Final = ["calculator", "record_idempotent"]
SCHEMA: Final = {
    "type": "object",
    "properties": {"total": {"type": "integer"}},
    "required": ["total"],
    "additionalProperties": False,
}
SOON: Final = {"first": 0.01, "max_delay": 0.05}
QUICK: Final = {"rules": dict.fromkeys(("provider_error", "connection", "rate_limited"), SOON)}


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, ChildCommand]]:
    """A Palaver whose providers are routes of a proxy in front of its model server."""
    folder = tmp_path_factory.mktemp("litellm")
    cluster = Cluster(folder, environment=KEYS)
    # It writes every request anew: what is asked is not what a log says, byte for byte.
    cluster.invariants = CHECKERS.keys() - {"I13"}
    url = f"http://{HOST}:{(port := free_port())}"
    with cluster.providers_path.open("a") as providers:
        providers.write(PROVIDERS.format(url=url))
    behind = {"OPENAI_BEHIND": f"{cluster.stack.model_url}/v1", "ANTHROPIC_BEHIND": cluster.stack.model_url}
    proxy = serving(
        "litellm",
        ["litellm", "--config", str(CONFIG), "--host", HOST, "--port", str(port)],
        healthy=f"{url}/health/liveliness",
        log_path=folder / "litellm.log",
        environment={**ALONE, **KEYS, **behind},
    )
    with proxy as child, cluster:
        for route in ROUTES:  # its first answer of a kind takes seconds, in which it does nothing else
            cluster.ended(cluster.submit(f"{route}/echo"), within=120)
        yield cluster, child


@pytest.fixture(scope="module")
def _cluster(proxied: tuple[Cluster, ChildCommand]) -> Cluster:
    return proxied[0]


@pytest.fixture(autouse=True)
def _proxy(proxied: tuple[Cluster, ChildCommand]) -> Iterator[None]:
    """A proxy that crashes fails the test that it was asked in, and no other one."""
    yield
    crashed = started_again(proxied[1])
    assert not crashed, crashed


def statuses(cluster: Cluster, run_id: str) -> list[int | None]:
    """What the model server answered to each request."""
    return [call.status for call in cluster.finished_calls(run_id)]


def failed_with(run: Run) -> str:
    assert run.status == "failed", run
    assert run.error is not None
    return str(run.error["class"])


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("route", ROUTES)
def test_a_tool_loop_and_the_turn_after_it(cluster: Cluster, route: str, streamed: bool) -> None:
    body = cluster.body(f"{route}/{LOOP}+use-each", tools=TOOLS, agent={"stream": streamed})
    run = cluster.ended(cluster.post(body))
    assert (run.status, run.usage.tool_calls, run.usage.model_calls) == ("completed", 4, 4), run.error
    assert run.usage.input_tokens > run.usage.output_tokens > 0
    again = cluster.ended(cluster.post({**body, "conversation_id": run.conversation_id}))
    assert again.status == "completed", again.error
    assert statuses(cluster, run.id) == statuses(cluster, again.id) == [200] * 4


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("route", ROUTES)
def test_what_a_model_thinks_goes_back_to_it(cluster: Cluster, route: str, streamed: bool) -> None:
    """Behind it Anthropic's side refuses a thought that is lost or changed, and OpenAI's an item."""
    body = cluster.body(f"{route}/{LOOP}+reasoning", tools=TOOLS, agent={"stream": streamed})
    run_id = cluster.post(body)
    shown = [event for _, event in stream(cluster.http, f"/v1/runs/{run_id}/events?include=reasoning")]
    run = cluster.ended(run_id)
    assert run.status == "completed", run.error
    thoughts = "".join(event["data"]["text"] for event in shown if event["event"] == "reasoning.delta")
    assert thoughts == ("".join(f" thought{i}" for i in range(1, 9)) * 4 if streamed else "")
    if route != "proxy-messages/gpt":  # it does not tell them apart there
        assert run.usage.reasoning_tokens == 8 * 4
    assert statuses(cluster, run_id) == [200] * 4


def test_what_caches_save_is_counted(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit(f"proxy-messages/claude/{LOOP}", tools=TOOLS))
    # The model server reads half of a prompt from its cache, and writes a quarter.
    assert run.usage.input_tokens > run.usage.cached_tokens > run.usage.cache_write_tokens > 0


@pytest.mark.parametrize("route", STREAMED)
def test_a_stream_that_is_cut_is_withdrawn_and_made_anew(cluster: Cluster, route: str) -> None:
    run_id = cluster.submit(f"{route}/{CUT}", agent={"retry": QUICK})
    run = cluster.ended(run_id)
    assert (run.status, run.output) == ("completed", " ".join(f"w{i}" for i in range(1, 31))), run.error
    assert cluster.outcomes(run_id) == ["fault:cut", "answered"]
    told = [event for event in cluster.events(run_id) if event.type in ("message.delta", "message.discarded")]
    (withdrawn,) = [place for place, event in enumerate(told) if event.type == "message.discarded"]
    assert "".join(event.data["text"] for event in told[withdrawn + 1 :]) == run.output


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("fault", ["503-1", "529-1", "badjson-1", "empty-1", "errorchunk-1-3"])
def test_a_fault_is_tried_again(cluster: Cluster, route: str, fault: str) -> None:
    run = cluster.ended(cluster.submit(f"{route}/say-5+{fault}", agent={"retry": QUICK}))
    assert (run.status, run.output) == ("completed", "w1 w2 w3 w4 w5"), run.error


@pytest.mark.parametrize("route", ROUTES)
def test_a_rate_limit_is_waited_for(cluster: Cluster, route: str) -> None:
    run = cluster.ended(cluster.submit(f"{route}/echo+429-1-3"))
    assert run.status == "completed", run.error
    first, second = cluster.finished_calls(run.id)
    assert (first.status, second.status) == (429, 200)
    (retry,) = [event.data for event in cluster.events(run.id) if event.type == "run.retrying"]
    assert retry["error"]["class"] == "rate_limited"
    if "messages" not in route:  # there it keeps to itself how long
        assert retry["delay"] >= 3
        assert second.at - first.at >= 3


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("fault", "wanted"),
    [("401", "authentication"), ("quota", "quota_exhausted"), ("context", "context_window"), ("404", "not_found")],
)
def test_what_no_other_try_helps_fails_at_once(cluster: Cluster, route: str, fault: str, wanted: str) -> None:
    run = cluster.ended(cluster.submit(f"{route}/echo+{fault}"))
    assert failed_with(run) == wanted, run.error
    assert not [event for event in cluster.events(run.id) if event.type == "run.retrying"]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("fault", ["policy", "filter"])
def test_what_is_filtered_ends_as_that(cluster: Cluster, route: str, fault: str) -> None:
    run = cluster.ended(cluster.submit(f"{route}/echo+{fault}"))
    assert (run.status, run.stop_reason) == ("incomplete", "content_filter"), run.error


@pytest.mark.parametrize("route", ROUTES)
def test_a_limit_ends_as_that(cluster: Cluster, route: str) -> None:
    run = cluster.ended(cluster.submit(f"{route}/say-90", agent={"max_output_tokens": 20}))
    assert (run.status, run.stop_reason) == ("incomplete", "max_tokens"), run.error


@pytest.mark.parametrize("provider", ["locked", "locked-messages"])
def test_a_key_of_its_own_that_is_wrong(cluster: Cluster, provider: str) -> None:
    run = cluster.ended(cluster.submit(f"{provider}/gpt/echo"))
    assert failed_with(run) == "authentication", run.error
    assert cluster.model_calls(run.id) == []


@pytest.mark.parametrize("route", STREAMED)
def test_a_cancel_closes_the_stream_behind_it(cluster: Cluster, route: str) -> None:
    run_id = cluster.submit(f"{route}/{SLOW}")
    cluster.saw(run_id, "message.delta")
    assert cluster.cancel(run_id) in (200, 202)
    run = cluster.ended(run_id)
    assert run.status == "cancelled"
    assert run.output
    (call,) = eventually(lambda: [each for each in cluster.model_calls(run_id) if each.closed_by_client_at])
    assert call.outcome == "disconnected"
    echo = f"{route.replace('known', 'gpt')}/echo"
    again = cluster.ended(cluster.submit(echo, "go on", conversation_id=run.conversation_id))
    assert (again.status, again.output) == ("completed", "echo: go on"), again.error


@pytest.mark.parametrize("provider", ["proxy", "proxy-messages"])
def test_answers_of_its_own(cluster: Cluster, provider: str) -> None:
    run = cluster.ended(cluster.submit(f"{provider}/mocked"))
    assert (run.status, run.output) == ("completed", "It is a mock."), run.error
    retry = {"rules": {"rate_limited": {**SOON, "attempts": 2}}}
    refused = cluster.ended(cluster.submit(f"{provider}/mocked-limit", agent={"retry": retry}))
    assert failed_with(refused) == "rate_limited", refused.error


@pytest.mark.parametrize("route", ROUTES)
def test_an_answer_that_has_to_be_json(cluster: Cluster, route: str) -> None:
    wanted = {"type": "json_schema", "name": "sum", "schema": SCHEMA}
    run = cluster.ended(cluster.submit(f"{route}/json", agent={"response_format": wanted}))
    assert (run.status, run.structured_output) == ("completed", {"total": 1}), run.error


def test_in_the_middle_of_a_tool_loop_another_route_goes_on(cluster: Cluster) -> None:
    """Each is sent what it understands, and nothing that another one thought."""
    retry = {"rules": {"provider_error": {"attempts": 1, "then": "fallback_model"}}}
    first, *others = [f"{route}/{LOOP}+reasoning" for route in ("proxy/claude", "proxy-messages/claude", "proxy/gpt")]
    run_id = cluster.submit(f"{first}+503@2", tools=TOOLS, agent={"fallbacks": others, "retry": retry})
    run = cluster.ended(run_id)
    assert (run.status, run.model) == ("completed", others[0]), run.error
