"""MCP servers that conversations name themselves: their calls are steps of the conversation that named them, made once,
and asked for as nobody else."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from features.stack.ports import free_port
from palaver.store.redis import keys
from tests.process.checks import check
from tests.process.cluster import Cluster
from tests.process.one_more import one_more
from tests.process.own_servers import Own
from tests.process.test_mcp_tools import UNKNOWN, Web
from tests.process.test_tools import told
from tests.process.typed import palaver
from tests.waiting import eventually

pytestmark = pytest.mark.process

SECRET_KEY = "Qk1vY2tLZXlPZkNvdXJzZU5vdEFSZWFsT25lITEyMzQ="
CANARY = "canary-of-a-token-91c3"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Own]:
    """The stack, and the servers."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "one").mkdir()
    (folder / "two").mkdir()
    one, two, nobody = Web(folder / "one"), Web(folder / "two"), free_port()
    hosts = ",".join(f"127.0.0.1:{port}" for port in (one.port, two.port, nobody))
    environment = {"PALAVER_INLINE_MCP_HOSTS": hosts, "PALAVER_SECRET_KEY": SECRET_KEY}
    one.start()
    two.start()
    try:
        with Cluster(folder, environment=environment) as cluster:
            yield Own(cluster, one, two, nobody)
    finally:
        one.kill()
        two.kill()


@pytest.fixture
def own(stack: Own) -> Iterator[Own]:
    """It, with all that must be true after each test."""
    stack.cluster.mark()
    yield stack
    check(stack.cluster)
    stack.cluster.heal()


def test_its_tools_are_called_and_its_errors_told(own: Own) -> None:
    made = own.calls(own.one, "echo")
    echo, fail = own.submit("echo", arguments={"text": "one"}), own.submit("fail")
    assert own.cluster.ended(echo).status == own.cluster.ended(fail).status == "completed"
    assert (own.said(echo), told(own.cluster, echo)) == ("one", [""])
    assert (own.said(fail), told(own.cluster, fail)) == ("no such city", ["tool_error"])
    assert own.calls(own.one, "echo") == made + 1
    tools = own.cluster.http.get("/v1/tools").json()["data"]
    assert not [each for each in tools if each["name"].startswith("web__")]


def test_who_says_nothing_of_approvals_is_asked_for_each_call(own: Own) -> None:
    agent = own.agent(own.one.port)
    del agent["approvals"]
    run_id = own.submit("echo", agent=agent, arguments={"text": "late"})
    (action,) = own.cluster.pending(run_id)
    items = [{"type": "approval", "action_id": action.id, "decision": "edit", "arguments": {"text": "edited"}}]
    answer = own.cluster.http.post(f"/v1/runs/{run_id}/input", json={"items": items})
    assert answer.status_code == 202, answer.text
    own.cluster.ended(run_id)
    assert own.said(run_id).endswith("edited")


def test_two_conversations_have_different_servers_under_one_label(own: Own) -> None:
    before = own.calls(own.one, "echo"), own.calls(own.two, "echo")
    runs = [
        own.submit("echo", port=server.port, arguments={"text": str(number)})
        for number, server in enumerate((own.one, own.two, own.one, own.two))
    ]
    assert [own.cluster.ended(run_id) and own.said(run_id) for run_id in runs] == ["0", "1", "2", "3"]
    assert (own.calls(own.one, "echo"), own.calls(own.two, "echo")) == (before[0] + 2, before[1] + 2)


def test_a_secret_goes_to_the_server_and_nowhere_else(own: Own) -> None:
    header = {"Authorization": {"secret": "WEB", "prefix": "Bearer "}}
    agent = own.agent(own.one.port, headers=header)
    run = own.cluster.ended(own.submit("who", agent=agent, secrets={"WEB": CANARY}))
    assert own.calls(own.one, f"who Bearer {CANARY}") == 1
    assert own.said(run.id) == "you are Bearer [redacted]"
    fork = own.cluster.http.post(f"/v1/runs/{run.id}/retry", json={"from_step": 1, "input": "[[args {}]]"})
    assert own.cluster.ended(fork.json()["id"]).status == "completed"
    assert own.calls(own.one, f"who Bearer {CANARY}") == 2
    # Another conversation has no such secret, and is nobody there.
    lacks = own.submit("list_tools", agent=agent)
    assert own.cluster.ended(lacks).status == "completed"
    assert own.said(lacks) == "the conversation has no secret 'WEB': its user can set one"
    with own.cluster.redis() as redis:
        for key in redis.scan_iter():
            dumped = redis.dump(key)
            assert dumped is None or CANARY.encode() not in dumped, key
    assert not any(CANARY in text for text in own.cluster.new_logs().values())


def test_one_that_comes_back_is_found_by_the_call(own: Own) -> None:
    own.two.kill()
    agent = own.agent(own.two.port)
    run_id = own.submit("list_tools", agent={**agent, "approvals": {"require": "always"}})
    (action,) = own.cluster.pending(run_id)
    own.two.start()
    own.cluster.approve(run_id, action.id)
    run = own.cluster.ended(run_id)
    assert own.said(run_id).startswith(f"web has these tools now: web__asks, web__at_{own.two.port}, web__brief")
    body = {"agent": {"model": "fake/tool-1+use-web__echo", **agent}, "conversation_id": run.conversation_id}
    again = own.cluster.post({**body, "input": '[[args {"text": "back"}]]'})
    assert own.cluster.ended(again).status == "completed"
    assert own.said(again) == "back"


def test_a_call_whose_worker_is_killed_is_not_made_again(own: Own) -> None:
    run_id = own.in_flight()
    made = own.calls(own.one, "wait")
    own.cluster.kill("worker")
    own.cluster.heal()
    assert own.cluster.ended(run_id).status == "completed"
    assert told(own.cluster, run_id) == ["tool_interrupted"]
    assert own.calls(own.one, "wait") == made


def test_a_call_whose_server_is_killed_is_not_made_again(own: Own) -> None:
    run_id = own.in_flight()
    made = own.calls(own.one, "wait")
    own.one.kill()
    assert own.cluster.ended(run_id).status == "completed"
    assert own.said(run_id).endswith(UNKNOWN)
    own.one.start()
    assert own.calls(own.one, "wait") == made


def test_a_cancel_ends_the_call_at_the_server(own: Own) -> None:
    left = own.calls(own.one, "wait was left")
    run_id = own.in_flight()
    own.cluster.http.post(f"/v1/runs/{run_id}/cancel")
    assert own.cluster.ended(run_id).status == "cancelled"
    eventually(lambda: own.calls(own.one, "wait was left") == left + 1)


def test_a_question_outlives_the_worker(own: Own) -> None:
    asked, made = own.submit("asks"), own.calls(own.one, "asks")
    (action,) = own.cluster.pending(asked)
    assert (action.type, action.question and action.question.asker) == ("question", "web")
    own.cluster.kill("worker")
    own.cluster.heal()
    item = {"type": "answer", "action_id": action.id, "response": "accept", "content": {"name": "Ada"}}
    assert own.cluster.http.post(f"/v1/runs/{asked}/input", json={"items": [item]}).status_code == 202
    assert own.cluster.ended(asked).status == "completed"
    assert json.loads(own.said(asked)) == [{"who": {"action": "accept", "content": {"name": "Ada"}}}, "s-1"]
    assert own.calls(own.one, "asks") <= made + 1


def test_an_agent_that_another_one_calls_has_its_own(own: Own) -> None:
    child = {"model": "fake/tool-1+use-web__echo", "name": "reader", **own.agent(own.two.port)}
    agent = {"tools": ["agent_reader"], "subagents": {"agent_reader": {"agent": child}}, **own.agent(own.one.port)}
    before = own.calls(own.one, "echo"), own.calls(own.two, "echo")
    run_id = own.cluster.submit("tool-1+use-agent_reader", '[[args {"message": "[[args {}]]"}]]', agent=agent)
    run = own.cluster.ended(run_id)
    assert run.status == "completed"
    own.cluster.submitted += [child.run_id for child in run.children]
    assert (own.calls(own.one, "echo"), own.calls(own.two, "echo")) == (before[0], before[1] + 1)


def test_a_worker_whose_operator_does_not_allow_the_host_asks_nobody(own: Own) -> None:
    own.cluster.terminate("worker")
    made = own.calls(own.one, "echo")
    with one_more(own.cluster, "worker", PALAVER_INLINE_MCP_HOSTS=""):
        run_id = own.submit("list_tools")
        assert own.cluster.ended(run_id).status == "completed"
        why = "PALAVER_INLINE_MCP_HOSTS of the worker does not allow the host 127.0.0.1"
        assert own.said(run_id) == f"nothing was asked: {why}"
    assert own.calls(own.one, "echo") == made


def test_a_label_that_a_tool_of_the_workers_has_by_now_is_called_for_neither(own: Own, tmp_path: Path) -> None:
    """Whoever admitted the run could not know of that tool."""
    made = own.calls(own.one, "echo")
    agent = {**own.agent(own.one.port, "late"), "approvals": {"require": "always"}}
    run_id = own.cluster.submit("tool-1+use-late__echo", "[[args {}]]", agent=agent)
    (action,) = own.cluster.pending(run_id)
    text = 'from palaver import tool\n\n\n@tool\ndef late__lookup() -> str:\n    """Look."""\n    return ""\n'
    (tmp_path / "late_tools.py").write_text(text)
    with one_more(own.cluster, "tools", PALAVER_TOOLS="late_tools", PYTHONPATH=str(tmp_path)):
        eventually(lambda: "late__lookup" in own.cluster.http.get("/v1/tools").text)
        # Those who admit runs look a few times a second for tools that they do not know.
        uses = eventually(lambda: own.cluster.submit("echo", tools=["late__lookup"]))
        assert own.cluster.ended(uses).status == "completed"
        own.cluster.approve(run_id, action.id)
        assert own.cluster.ended(run_id).status == "completed"
    why = "the label 'late' is also that of the tool 'late__lookup' of this installation"
    assert own.said(run_id) == f"nothing was called: {why}: the agent has to give its server another label"
    assert own.calls(own.one, "echo") == made


@pytest.fixture
def keyed(own: Own) -> Iterator[Callable[[str], httpx.Client]]:
    """An API that wants keys, asked as a tenant."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PALAVER_")}
    environment = {**clean, **own.cluster.places}
    scopes = [word for scope in ("runs:submit", "runs:read") for word in ("--scope", scope)]
    with ExitStack() as opened:
        port = str(free_port())
        opened.enter_context(one_more(own.cluster, "api", PALAVER_REQUIRE_KEYS="true", PALAVER_API_PORT=port))

        def client(tenant: str) -> httpx.Client:
            own.cluster.ask(lambda store: store.tenants.create(tenant))
            made = palaver("keys", "create", "app", "--tenant", tenant, *scopes, environment=environment)
            assert made.returncode == 0, made.stderr
            headers = {"Authorization": f"Bearer {made.stdout.strip()}"}
            return opened.enter_context(
                httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, trust_env=False, timeout=30)
            )

        yield client


def test_nothing_of_a_tenants_server_reaches_another_tenant(own: Own, keyed: Callable[[str], httpx.Client]) -> None:
    """Both call theirs by one label; it is another server, asked with another credential."""
    servers = {"acme": own.one, "globex": own.two}
    tokens = {tenant: f"token-of-{tenant}-77aa" for tenant in servers}
    clients = {tenant: keyed(tenant) for tenant in servers}
    told, runs = dict.fromkeys(servers, ""), dict[str, dict[str, Any]]()
    for step in range(2):
        for tenant, client in clients.items():
            tool = f"at_{servers[tenant].port}" if step else "who"
            header = {"Authorization": {"secret": "WEB", "prefix": "Bearer "}}
            agent = own.agent(servers[tenant].port, headers=header)
            body = own.cluster.body(f"tool-1+use-web__{tool}", f"[[args {{}}]] for {tenant}", agent=agent)
            run = client.post("/v1/runs", json={**body, "secrets": {"WEB": tokens[tenant]}}).json()
            runs[tenant] = run
            ended = client.get(f"/v1/runs/{run['id']}", params={"wait": 20}).json()
            assert ended["status"] == "completed", ended
            told[tenant] += client.get(f"/v1/runs/{run['id']}/events").text
    for tenant, stranger in (("acme", "globex"), ("globex", "acme")):
        heard = servers[tenant].journal.read_text()
        assert f"who Bearer {tokens[tenant]}" in heard
        assert tokens[stranger] not in heard, "a connection of another's, or its list with another's credential"
        assert f"web__at_{servers[tenant].port}" in told[tenant]
        for word in (f"at_{servers[stranger].port}", *tokens.values(), f"for {stranger}"):
            assert word not in told[tenant], word
        assert clients[tenant].get(f"/v1/runs/{runs[stranger]['id']}").status_code == 404
        with own.cluster.redis() as redis:
            kept: Any = redis.hgetall(keys.conversation(runs[tenant]["conversation_id"]))
        (listed,) = (value.decode() for field, value in kept.items() if field.startswith(b"offers:"))
        assert f"at_{servers[tenant].port}" in listed
        assert f"at_{servers[stranger].port}" not in listed
    # The model of these runs is named for the tool that it calls: that is ours.
    measured = re.sub(r"use-web__\w+", "", own.cluster.http.get("/metrics").text)
    words = (*tokens.values(), "web__", *(f"at_{server.port}" for server in servers.values()))
    found = [
        (name, word)
        for name, text in {**own.cluster.new_logs(), "metrics": measured}.items()
        for word in words
        if word in text
    ]
    assert not found


def test_openais_client_names_a_server_and_decides_on_its_call(own: Own) -> None:
    server: Any = {
        "type": "mcp",
        "server_label": "web",
        "server_url": f"http://127.0.0.1:{own.one.port}/mcp",
        "authorization": CANARY,
        "allowed_tools": ["who", "echo"],
    }
    url = f"{own.cluster.stack.url}/openai/v1"
    with openai.OpenAI(base_url=url, api_key="any", max_retries=0, _strict_response_validation=True) as client:
        create: Any = client.responses.create
        first = create(model="fake/tool-1+use-web__who", input="[[args {}]]", tools=[server])
        (request,) = [item for item in first.output if item.type == "mcp_approval_request"]
        assert (request.server_label, request.name) == ("web", "who")
        said: Any = [{"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}]
        second = create(model="fake/tool-1", input=said, previous_response_id=first.id)
        assert (second.status, [item.type for item in second.output]) == ("completed", ["mcp_call", "message"])
        (made,) = [item for item in second.output if item.type == "mcp_call"]
        assert (made.server_label, made.name, made.output) == ("web", "who", "you are Bearer [redacted]")
        assert own.calls(own.one, f"who Bearer {CANARY}") >= 1
        waived: Any = [{**server, "require_approval": {"never": {"tool_names": ["echo"]}}}]
        third = create(model="fake/tool-1+use-web__echo", input='[[args {"text": "free"}]]', tools=waived)
        assert [item.type for item in third.output] == ["mcp_call", "message"]
        left: Any = [{**server, "allowed_tools": ["echo"]}]
        streamed: Any = create(model="fake/tool-1+use-web__echo", input="[[args {}]]", tools=left, stream=True)
        last: Any = list(streamed)[-1]
        assert (last.type, last.response.output[-1].type) == ("response.completed", "mcp_approval_request")
        client.responses.cancel(last.response.id)
    own.cluster.submitted += [each.metadata["palaver_run_id"] for each in (first, third, last.response)]
