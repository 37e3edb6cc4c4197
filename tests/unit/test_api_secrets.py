"""Secrets of a conversation over HTTP: they come in, and nothing tells them."""

from __future__ import annotations

import httpx
from pydantic import SecretStr

from palaver.client.options import wire
from palaver.config.settings import Settings
from palaver.schemas.models import Submission
from palaver.store.redis import keys
from palaver.vocabulary.limits import limit_of
from tests.unit.api_world import AGENT, SETTINGS, World, assert_problem, in_one_world, world

CANARY = "canary-of-a-secret-1f2e"
WITHOUT_KEY = SETTINGS.model_copy(update={"secret_key": ()})


async def test_they_are_set_and_removed_by_name() -> None:
    async with world() as api:
        run = await api.submit(secrets={"TOKEN": CANARY, "OLD": "x"})
        path = f"{run['links']['conversation']}/secrets"
        assert (await api.client.get(path)).json() == {"data": ["OLD", "TOKEN"]}
        changed = await api.client.patch(path, json={"secrets": {"OLD": None, "PASSWORD": "two"}})
        assert (changed.status_code, changed.json()) == (200, {"data": ["PASSWORD", "TOKEN"]})
        opened = await api.store.vault.opened(run["conversation_id"])
        assert opened == {"TOKEN": CANARY, "PASSWORD": "two"}
        await api.finish(run)
        await api.client.delete(run["links"]["conversation"])
        assert_problem(await api.client.get(path), 404, "conversation_not_found")
        assert_problem(await api.client.patch(path, json={"secrets": {"A": "b"}}), 404, "conversation_not_found")


async def test_a_conversation_can_begin_with_some() -> None:
    async with world() as api:
        answer = await api.client.post("/v1/conversations", json={"secrets": {"TOKEN": CANARY, "NONE": None}})
        assert answer.status_code == 201
        assert CANARY not in answer.text
        assert await api.store.vault.opened(answer.json()["id"]) == {"TOKEN": CANARY}
        large = {f"S{n}": "x" * limit_of("secret_value") for n in range(7)}
        assert_problem(await api.client.post("/v1/conversations", json={"secrets": large}), 409, "secrets_full")


async def test_no_answer_has_one() -> None:
    async with world() as api:
        run = await api.submit(secrets={"TOKEN": CANARY})
        conversation = run["links"]["conversation"]
        await api.finish(run)
        paths = (
            "/v1/runs",
            *run["links"].values(),
            conversation,
            f"{conversation}/messages",
            f"{conversation}/secrets",
        )
        for path in paths:
            answer = await api.client.get(path)
            assert CANARY not in answer.text, path
        for name in await api.redis.keys("*"):
            assert CANARY.encode() not in (await api.redis.dump(name) or b""), name


@in_one_world(
    [
        ({"TOKEN": ""}, "/secrets/TOKEN"),
        ({"TOKEN": 7}, "/secrets/TOKEN"),
        ({"TOKEN": {"kind": "LookupSecret", "url": "http://elsewhere"}}, "/secrets/TOKEN"),
        ({"TOKEN": "x" * (limit_of("secret_value") + 1)}, "/secrets/TOKEN"),
        ([CANARY], "/secrets"),
        ({f"S{n}": "x" for n in range(limit_of("secrets") + 1)}, "/secrets"),
    ]
)
async def test_what_does_not_fit_is_refused_and_not_quoted(api: World, secrets: object, pointer: str) -> None:
    begun = (await api.client.post("/v1/conversations", json={})).json()["id"]
    for answer in (
        await api.client.post("/v1/runs", json={"agent": AGENT, "input": "x", "secrets": secrets}),
        await api.client.patch(f"/v1/conversations/{begun}/secrets", json={"secrets": secrets}),
    ):
        problem = assert_problem(answer, 422, "validation_error", pointer)
        assert CANARY not in str(problem)


async def test_a_name_is_one() -> None:
    async with world() as api:
        answer = await api.client.post("/v1/runs", json={"agent": AGENT, "input": "x", "secrets": {"a b": CANARY}})
        assert_problem(answer, 422, "validation_error")
        assert CANARY not in answer.text


async def test_more_than_there_may_be() -> None:
    async with world() as api:
        run = await api.submit(secrets={f"S{n}": "x" for n in range(limit_of("secrets"))})
        path = f"{run['links']['conversation']}/secrets"
        assert_problem(await api.client.patch(path, json={"secrets": {"MORE": "x"}}), 409, "secrets_full")
        again = {"conversation_id": run["conversation_id"], "input": "x", "secrets": {"MORE": "x"}}
        assert_problem(await api.client.post("/v1/runs", json=again), 409, "secrets_full")


async def test_without_a_key_none_is_taken() -> None:
    async with world(WITHOUT_KEY) as api:
        body = {"agent": AGENT, "input": "x", "secrets": {"TOKEN": CANARY}}
        problem = assert_problem(await api.client.post("/v1/runs", json=body), 422, "no_secret_key", "/secrets")
        assert "PALAVER_SECRET_KEY" in problem["detail"]
        run = await api.submit()
        path = f"{run['links']['conversation']}/secrets"
        assert_problem(await api.client.patch(path, json={"secrets": {"A": "b"}}), 422, "no_secret_key", "/secrets")
        assert (await api.client.get(path)).json() == {"data": []}


async def test_a_fork_needs_the_key_that_the_secrets_are_sealed_with() -> None:
    async with world() as api:
        run = await api.submit(secrets={"TOKEN": CANARY})
        await api.finish(run)
        api.store.runs._vault._sealer = Settings(redis_url="redis://fake/0").sealer
        answer = await api.client.post(f"/v1/runs/{run['id']}/retry", json={"from_step": 1, "input": "x"})
        assert_problem(answer, 422, "no_secret_key")
        answer = await api.client.post(f"{run['links']['conversation']}/fork", json={})
        assert_problem(answer, 422, "no_secret_key")


async def test_a_fork_of_what_somebody_has_changed_is_refused_with_a_sentence() -> None:
    async with world() as api:
        one, other = [await api.submit(secrets={"TOKEN": CANARY}) for _ in range(2)]
        stolen = await api.redis.hget(keys.conversation(one["conversation_id"]), "secrets")
        await api.redis.hset(keys.conversation(other["conversation_id"]), "secrets", stolen)
        answer = await api.client.post(f"{other['links']['conversation']}/fork", json={})
        assert "set it again" in assert_problem(answer, 409, "secrets_broken")["detail"]


async def test_a_fork_has_them() -> None:
    async with world() as api:
        run = await api.submit(secrets={"TOKEN": CANARY})
        await api.finish(run)
        answer = await api.client.post(f"{run['links']['conversation']}/fork", json={})
        assert answer.status_code == 201, answer.text
        assert answer.json()["id"] != run["conversation_id"]
        assert await api.store.vault.opened(answer.json()["id"]) == {"TOKEN": CANARY}


async def test_the_same_key_for_the_same_request_makes_no_second_run() -> None:
    async with world() as api:
        answers: list[httpx.Response] = [
            await api.client.post(
                "/v1/runs",
                json={"agent": AGENT, "input": "x", "secrets": {"TOKEN": value}},
                headers={"Idempotency-Key": "once"},
            )
            for value in (CANARY, "another")
        ]
        assert [answer.status_code for answer in answers] == [202, 202]
        assert answers[0].json()["id"] == answers[1].json()["id"]


def test_a_submission_says_none_of_its_secrets() -> None:
    submission = Submission(input="x", secrets={"TOKEN": SecretStr(CANARY)})
    for told in (repr(submission), str(submission), submission.model_dump_json(), str(submission.model_dump())):
        assert CANARY not in told


def test_an_agent_is_written_as_it_is_for_its_request() -> None:
    assert wire({"model": "fake/echo"}) == {"model": "fake/echo"}
