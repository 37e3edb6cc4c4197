"""A record that somebody else has written to is an error of its class, of its own run or conversation alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from palaver.errors import ErrorClass, classify
from palaver.errors.exceptions import CorruptRecord
from palaver.store.redis import keys
from tests.unit.api_world import assert_problem, world

GARBAGE = (b"\x00garbage{", b"\xff\xfe", b"99999999999999999999999", b"[1", b"")
"""What is nothing in any of the fields."""
OF_RUNS = ("id", "conversation", "status", "agent", "created_at", "metadata")
OF_CONVERSATIONS = ("id", "agent", "created_at", "active", "last_outcome", "metadata")
READ_BY_SCRIPTS = {"version": (b"garbage",), "entries": (b"garbage",), "unfinished": (b"garbage", b"[]")}


@pytest.fixture(autouse=True)
def no_traceback(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nor a word of one that nobody foresaw."""
    yield
    assert not [each for each in caplog.records if each.exc_info]


@pytest.mark.parametrize("value", GARBAGE)
@pytest.mark.parametrize("field", OF_RUNS)
async def test_lists_of_runs_are_without_what_cannot_be_read(
    field: str, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with world() as api:
        run, other = await api.submit(), await api.submit()
        await api.redis.hset(keys.run(run["id"]), field, value)
        assert_problem(await api.client.get(f"/v1/runs/{run['id']}"), 500, "corrupt_record")
        listed = await api.client.get("/v1/runs")
        assert [each["id"] for each in listed.json()["data"]] == [other["id"]]
        assert "cannot be read and is left out of a list" in caplog.text


@pytest.mark.parametrize("value", GARBAGE)
@pytest.mark.parametrize("field", OF_CONVERSATIONS)
async def test_lists_of_conversations_are_without_what_cannot_be_read(field: str, value: bytes) -> None:
    async with world() as api:
        run, other = await api.submit(), await api.submit()
        await api.redis.hset(keys.conversation(run["conversation_id"]), field, value)
        answer = await api.client.get(f"/v1/conversations/{run['conversation_id']}")
        assert_problem(answer, 500, "corrupt_record")
        listed = await api.client.get("/v1/conversations")
        assert [each["id"] for each in listed.json()["data"]] == [other["conversation_id"]]


@pytest.mark.parametrize(("field", "value"), [(name, each) for name, some in READ_BY_SCRIPTS.items() for each in some])
async def test_what_a_script_cannot_read_is_one_too(field: str, value: bytes) -> None:
    async with world() as api:
        run = await api.submit()
        conversation_id = run["conversation_id"]
        await api.redis.hset(keys.conversation(conversation_id), field, value)
        answer = await api.client.post("/v1/runs", json={"conversation_id": conversation_id, "input": "hello"})
        problem = assert_problem(answer, 500, "corrupt_record")
        assert conversation_id in problem["detail"]
        await api.submit()


async def test_open_steps_that_cannot_be_read_are_their_runs_own() -> None:
    async with world() as api:
        run, other = await api.submit(), await api.submit()
        (step,) = await api.redis.hkeys(keys.steps(run["id"]))
        await api.redis.hset(keys.steps(run["id"]), step, b"{")
        assert_problem(await api.client.get(f"/v1/runs/{run['id']}"), 500, "corrupt_record")
        assert [each["id"] for each in (await api.client.get("/v1/runs")).json()["data"]] == [other["id"]]


def test_a_worker_classifies_it_by_its_name() -> None:
    failure = classify(CorruptRecord("the run"))
    assert (failure.error_class, failure.code) == (ErrorClass.INTERNAL, "corrupt_record")
