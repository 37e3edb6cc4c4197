"""Nothing of one tenant is shown to another one, or changed by it, whatever route, socket, place or id it tries."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.responses import Response
from starlette.routing import WebSocketRoute

from api.app import create_app
from api.app.installed import dialects_of
from api.kit.dialects import Dialect
from api.native.dialect import RunId
from api.native.links import run_json
from palaver.operations import Backend
from palaver.store.redis.reach import EVERYTHING, within
from palaver.vocabulary.lifecycle import RunStatus
from tests.tiers import sample
from tests.unit.api_world import BODY, assert_problem
from tests.unit.toy_dialect import TOY
from tests.unit.two_tenants import (
    CANARY,
    OPERATOR,
    TENANTS,
    Attack,
    Leak,
    asking_as,
    counting,
    furnish,
    furnish_again,
    hear,
    operations_of,
    tags_in,
    tenants,
    unknown,
)

DOCUMENT = create_app(dialects=dialects_of(("*",))).openapi()
OPERATIONS = operations_of(DOCUMENT)
WITH_TEXTS = [each for each in OPERATIONS if any(not place.takes_id for place in each.places())]
SOCKETS = [route.path for route in create_app().routes if isinstance(route, WebSocketRoute)]
PAIRS = [("acme", "globex"), ("default", "globex"), ("acme", "default")]
FIRST = {each.scopes: each.id for each in reversed(OPERATIONS) if "{" in each.path}
"""Of each scope the first route with an id in it. That no other one leads further is what keys are made by
(test_reach.py): `make test` tries these, and the long tier all."""
ATTACKS = [
    pytest.param(
        operation,
        *pair,
        id=f"{operation.id}-{'-'.join(pair)}",
        marks=[] if pair == PAIRS[0] and operation.id in FIRST.values() else pytest.mark.long,
    )
    for operation in OPERATIONS
    for pair in PAIRS
]


@pytest.mark.slow
@pytest.mark.parametrize(("operation", "victim", "attacker"), ATTACKS)
async def test_what_is_anothers_is_answered_as_what_is_not_there(operation: Any, victim: str, attacker: str) -> None:
    async with tenants() as api:
        attack = Attack(api, await furnish_again(api, victim), victim, attacker)
        await attack.on(operation, [place for place in operation.places() if place.takes_id])
        if "{" in operation.path or operation.id == "POST /mcp":
            assert attack.tried >= 8


@pytest.mark.slow
@pytest.mark.parametrize("operation", sample((pytest.param(each, id=each.id) for each in WITH_TEXTS), 4))
async def test_an_id_of_anothers_is_a_text_as_any_other_where_no_id_belongs(operation: Any) -> None:
    async with tenants() as api:
        attack = Attack(api, await furnish_again(api, "acme"), "acme", "globex")
        await attack.on(operation, [place for place in operation.places() if not place.takes_id])
        assert attack.tried >= 8


_A_RUN: Any = {200: ("A run.", None)}
LEAKY = Dialect("leaky", "/leaky", TOY.respond, TOY.errors)
HONEST = Dialect("honest", "/honest", TOY.respond, TOY.errors)


@LEAKY.route(
    "GET", "/leaky/runs/{run_id}", tag="leaky", summary="Leak", scope="runs:read", answers={200: ("A run.", None)}
)
async def leak(backend: Backend, run_id: RunId) -> Response:
    """Reads as the process itself does."""
    with within(EVERYTHING):
        return Response(run_json(await backend.run(run_id)))


@LEAKY.route(
    "GET", "/leaky/there/{run_id}", tag="leaky", summary="Hint", scope="runs:read", answers={200: ("A run.", None)}
)
async def hint(backend: Backend, run_id: RunId) -> Response:
    """Says nothing, and asks Redis once more for what is there."""
    with within(EVERYTHING):
        conversation_id = await backend.store.runs.conversation_of(run_id)
        await backend.store.runs.glance(conversation_id)
    raise AssertionError


@HONEST.route(
    "GET", "/honest/runs/{run_id}", tag="honest", summary="Read", scope="runs:read", answers={200: ("A run.", None)}
)
async def read(backend: Backend, run_id: RunId) -> Response:
    """Does what anybody would write who knows of no tenants."""
    return Response(run_json(await backend.run(run_id)))


@pytest.mark.slow
async def test_a_new_route_is_tried_and_closed_by_itself() -> None:
    dialects = (*dialects_of(("*",)), HONEST, LEAKY)
    new = [each for each in operations_of(create_app(dialects=dialects).openapi()) if each not in OPERATIONS]
    by_path = {each.path: each for each in new if each.path.startswith(("/honest", "/leaky"))}
    assert len(by_path) == 3
    async with tenants(dialects=dialects) as api:
        attack = Attack(api, await furnish(api, "acme"), "acme", "globex")
        await attack.on(by_path["/honest/runs/{run_id}"])
        assert attack.tried >= 8
        with pytest.raises(Leak, match=r"/leaky/runs/\{run_id\}: run run_"):
            await attack.on(by_path["/leaky/runs/{run_id}"])
        with pytest.raises(Leak, match=r"/leaky/there/\{run_id\}: run run_.* is not answered as unknown ones"):
            await attack.on(by_path["/leaky/there/{run_id}"])


@pytest.mark.slow
@pytest.mark.parametrize("path", SOCKETS)
@pytest.mark.parametrize(("victim", "attacker"), PAIRS)
async def test_a_socket_is_closed_as_for_what_is_not_there(path: str, victim: str, attacker: str) -> None:
    async with tenants() as api:
        has = await furnish_again(api, victim)
        place = path[path.index("{") : path.index("}") + 1]
        for kind in ("number", "conversation", "run"):
            for value in has.values[kind]:
                heard = []
                for each in (value, unknown(kind, value, TENANTS[attacker]), unknown(kind, value, TENANTS[victim])):
                    commands: list[str] = []
                    with counting(commands):
                        heard.append((await hear(api, path.replace(place, each), attacker), commands))
                assert heard[0] == heard[1] == heard[2]
                assert [message["type"] for message in heard[0][0]] == ["websocket.accept", "websocket.close"]
                if kind == "number":
                    assert (await hear(api, path.replace(place, value), victim))[1]["type"] == "websocket.send"
                    said = await hear(api, path.replace(place, value), victim, in_frame=True)
                    assert said[1]["type"] == "websocket.send"
                assert await hear(api, path.replace(place, value), attacker, in_frame=True) == heard[0][0]


@pytest.mark.slow
async def test_lists_and_counts_have_what_is_ones_own() -> None:
    async with tenants() as api:
        has = {who: await furnish(api, who) for who in TENANTS}
        for who, own in has.items():
            with asking_as(api, who):
                runs = (await api.client.get("/v1/runs")).json()
                assert {run["id"] for run in runs["data"]} == set(own.runs)
                counted = (await api.client.get("/v1/runs/count")).json()["statuses"]
                assert counted == {
                    status: [run["status"] for run in runs["data"]].count(status) for status in RunStatus
                }
                waiting = (await api.client.get("/v1/runs?status=requires_action")).json()
                assert [run["id"] for run in waiting["data"]] == [own.values["run"][1]]
                conversations = (await api.client.get("/v1/conversations")).json()
                assert {each["id"] for each in conversations["data"]} == set(own.conversations)
                assert (await api.client.get("/v1/conversations/count")).json()["count"] == len(own.conversations)
        with asking_as(api, OPERATOR):
            everybodys = (await api.client.get("/v1/runs")).json()["data"]
            assert {run["id"] for run in everybodys} == {each for own in has.values() for each in own.runs}
            assert sum((await api.client.get("/v1/runs/count")).json()["statuses"].values()) == len(everybodys)
            everything = sum(len(own.conversations) for own in has.values())
            assert (await api.client.get("/v1/conversations/count")).json()["count"] == everything


@pytest.mark.slow
async def test_many_runs_at_once_are_ones_own() -> None:
    async with tenants() as api:
        victim = await furnish(api, "acme")
        own = await furnish(api, "globex")
        with asking_as(api, "acme"):
            before = {run["id"]: run["status"] for run in (await api.client.get("/v1/runs")).json()["data"]}
        assert {"completed", "queued", "requires_action"} <= {*before.values()}
        with asking_as(api, "globex"):
            done = await api.client.post("/v1/runs/actions", json={"action": "cancel", "all": True})
            # Of what it has, one run has ended.
            assert done.json()["done"] == len(own.runs) - 1
            body = {"action": "delete", "filter": {"conversation_id": victim.conversations[0]}}
            assert (await api.client.post("/v1/runs/actions", json=body)).json()["matched"] == 0
            for action in ("delete", "retry"):
                await api.client.post("/v1/runs/actions", json={"action": action, "all": True})
        with asking_as(api, "acme"):
            runs = (await api.client.get("/v1/runs")).json()["data"]
            assert {run["id"] for run in runs} == set(victim.runs)
            assert {run["id"]: run["status"] for run in runs} == before


async def test_an_idempotency_key_is_a_tenants_own() -> None:
    async with tenants() as api:
        made: dict[str, list[str | None]] = {}
        for who in (*TENANTS, OPERATOR):
            with asking_as(api, who):
                for _ in range(2):
                    answer = await api.client.post("/v1/runs", json=BODY, headers={"Idempotency-Key": "same"})
                    assert answer.status_code == 202
                    made.setdefault(answer.json()["id"], []).append(answer.headers.get("idempotency-replayed"))
        assert list(made.values()) == [[None, "true"]] * 4


async def test_two_tenants_may_call_a_conversation_the_same() -> None:
    async with tenants() as api:
        number, made = "12345678-1234-4234-8234-123456789abc", []
        for who in ("acme", "globex"):
            with asking_as(api, who):
                answer = await api.client.post("/v1/conversations", json={"id": number, "title": who})
                assert answer.status_code == 201
                made.append(answer.json()["id"])
                info = (await api.client.get(f"/v1/conversations/{made[-1]}")).json()
                assert info["title"] == who
        assert [tags_in(each) for each in made] == [{TENANTS["acme"]}, {TENANTS["globex"]}]
        with asking_as(api, "globex"):
            answer = await api.client.post("/v1/conversations", json={"id": made[0]})
            assert_problem(answer, 422, "validation_error", "/id")


@pytest.mark.slow
async def test_an_operator_reaches_all_and_what_is_made_stays_its_tenants() -> None:
    async with tenants() as api:
        has = await furnish(api, "acme")
        with asking_as(api, OPERATOR):
            conversation = has.values["conversation"][0]
            for run_id in has.runs:
                assert (await api.client.get(f"/v1/runs/{run_id}")).status_code == 200
            answer = await api.client.post(f"/v1/conversations/{conversation}/fork", json={})
            assert answer.status_code == 201, answer.text
            chosen = await api.client.post(
                f"/v1/conversations/{conversation}/fork", json={"id": "12345678-1234-4234-8234-123456789abc"}
            )
            assert chosen.status_code == 201, chosen.text
            for forked in (answer, chosen):
                assert tags_in(forked.json()["id"]) == {TENANTS["acme"]}
            run = (await api.client.post("/v1/runs", json={"conversation_id": conversation, "input": "hi"})).json()
            assert tags_in(run["id"]) == {TENANTS["acme"]}
            own = (await api.client.post("/v1/runs", json=BODY)).json()
            assert tags_in(own["id"]) == {""}


@pytest.mark.slow
async def test_what_all_do_together_is_for_operators() -> None:
    async with tenants() as api:
        await furnish(api, "acme")
        for who, shown in (("acme", None), ("default", []), (OPERATOR, [])):
            with asking_as(api, who):
                answer = await api.client.get("/readyz")
                assert answer.status_code == 200
                assert answer.json()["no_worker"] == answer.json()["refused_workers"] == shown
        for path in ("/metrics", "/v1/queues", "/v1/queues?format=keda"):
            with asking_as(api, "acme"):
                assert_problem(await api.client.get(path), 403, "operators_only")
            for who in ("default", OPERATOR):
                with asking_as(api, who):
                    answer = await api.client.get(path)
                    assert answer.status_code == 200
                    assert CANARY not in answer.text
                    assert not tags_in(answer.text) - {""}


@pytest.mark.slow
async def test_one_watches_while_another_one_does() -> None:
    async with tenants() as api:
        for who in ("acme", "globex"):
            has = await furnish(api, who)
            with asking_as(api, who):
                events = await api.client.get(
                    f"/v1/runs/{has.values['run'][0]}/events", headers={"accept": "text/event-stream"}
                )
                assert "run.finished" in events.text
                conversation = f"/v1/conversations/{has.values['conversation'][0]}"
                page = await api.client.get(f"{conversation}/events", headers={"accept": "application/json"})
                assert tags_in(page.text) == {TENANTS[who]}
