"""Conversations: begun, read, and what was said in them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from palaver import operations
from palaver.errors import Refused
from palaver.operations import Caller
from palaver.schemas.conversation import ConversationPatch, NewConversation
from palaver.schemas.models import Message, ToolCall
from palaver.schemas.opaque import Opaque
from palaver.steps.stuck import Nudge
from palaver.steps.verdicts import Condensed, Continue, Finish, ToolOutcome
from palaver.vocabulary.ids import conversation_id
from palaver.vocabulary.lifecycle import StopReason
from palaver.vocabulary.limits import limit_of
from tests.unit.api_world import (
    AGENT,
    CONVERSATION_ID,
    LiveRequest,
    World,
    assert_problem,
    events_of,
    in_one_world,
    world,
)

NUMBER = UUID("0f8fad5b-d9cb-469f-a165-70867728950e")


@pytest.mark.parametrize(
    ("body", "model"),
    [(None, None), ({}, None), ({"agent": None}, None), ({"agent": AGENT}, "fake/tool-20")],
)
async def test_a_conversation_can_be_begun_with_or_without_an_agent(
    body: dict[str, Any] | None, model: str | None
) -> None:
    async with world() as api:
        answer = await api.client.post("/v1/conversations", json=body)
        assert answer.status_code == 201
        made = answer.json()
        assert answer.headers["location"] == f"/v1/conversations/{made['id']}"
        assert (made["agent"] or {}).get("model") == model
        assert (await api.client.get(answer.headers["location"])).json() == made


async def test_a_conversation_shows_its_runs() -> None:
    async with world() as api:
        first = await api.submit()
        second = await api.submit(agent=None, conversation_id=first["conversation_id"])
        path = first["links"]["conversation"]
        busy = (await api.client.get(path)).json()
        assert (busy["active_run"], busy["queued_runs"]) == (first["id"], [second["id"]])
        await api.finish(first)
        later = (await api.client.get(path)).json()
        assert later["last_outcome"] == {
            "run_id": first["id"],
            "status": "completed",
            "stop_reason": "end_turn",
        }


async def test_what_the_engine_told_the_model_is_marked() -> None:
    async with world() as api:
        run = await api.submit(input="2+2?")
        notes = (Condensed("so far", 1), Nudge("Try something else."))
        verdict = Finish(Message(role="assistant", content="4"), StopReason.END_TURN, notes=notes)
        await api.store.steps.settle(await api.claim(run), verdict)
        said = (await api.client.get(f"{run['links']['conversation']}/messages")).json()["data"]
        assert [(message["content"], message["nudge"]) for message in said] == [
            ("2+2?", False), ("Try something else.", True), ("4", False),
        ]  # fmt: skip


async def test_words_without_a_run_are_in_the_log_and_the_next_run_answers_them() -> None:
    async with world() as api:
        made = (await api.client.post("/v1/conversations", json={"agent": AGENT})).json()
        path = f"/v1/conversations/{made['id']}/messages"
        for replayed in (None, "true"):
            answer = await api.client.post(path, json={"input": "hello"}, headers={"Idempotency-Key": "k"})
            assert (answer.status_code, answer.json()) == (201, {"position": 1, "run_id": None})
            assert answer.headers.get("idempotency-replayed") == replayed
        assert_problem(
            await api.client.post(path, json={"input": "bye"}, headers={"Idempotency-Key": "k"}),
            422,
            "idempotency_key_reused",
        )
        (message,) = (await api.client.get(path)).json()["data"]
        assert (message["content"], message["run_id"], message["position"]) == ("hello", None, 1)

        run = await api.submit(agent=None, conversation_id=made["id"], input=[])
        taken = await api.client.post(path, json={"input": [{"role": "user", "content": "quick"}]})
        assert (taken.status_code, taken.json()) == (202, {"position": None, "run_id": run["id"]})
        lease = await api.claim(run)
        assert [entry.message.text for entry in lease.log.entries] == ["hello", "quick"]


@in_one_world(
    [
        ({"input": " "}, "/input", "empty_input"),
        ({"input": []}, "/input", "empty_input"),
        ({"input": [{"role": "assistant", "content": "I"}]}, "/input/0/role", "invalid_history"),
        ({"input": [{"role": "user", "content": [{"type": "document", "data": "x"}]}]}, None, "validation_error"),
        ({}, "/input", "validation_error"),
    ]
)
async def test_words_that_are_none_of_the_user_are_refused(
    api: World, body: dict[str, Any], pointer: str | None, code: str
) -> None:
    made = (await api.client.post("/v1/conversations", json={"agent": AGENT})).json()
    refused = await api.client.post(f"/v1/conversations/{made['id']}/messages", json=body)
    assert refused.status_code == 422
    if pointer:
        assert pointer in [each["pointer"] for each in refused.json()["errors"]], refused.text
    assert refused.json()["code"] == code


async def test_condensing_is_a_run_of_its_own() -> None:
    async with world() as api:
        run = await api.submit()
        path = f"{run['links']['conversation']}/condense"
        assert_problem(await api.client.post(path), 409, "nothing_to_condense")
        await api.finish(run)
        second = await api.submit(agent=None, conversation_id=run["conversation_id"])
        assert_problem(await api.client.post(path), 409, "conversation_busy")
        await api.finish(second)
        answer = await api.client.post(path)
        assert answer.status_code == 202, answer.text
        made = answer.json()
        assert answer.headers["location"] == made["links"]["self"]
        assert (await api.claim(made)).condenses


async def test_what_was_condensed_is_not_condensed_again() -> None:
    async with world() as api:
        run = await api.submit()
        await api.finish(run)
        path = run["links"]["conversation"]
        await api.finish(await api.submit(agent=None, conversation_id=run["conversation_id"]))
        condensing = (await api.client.post(f"{path}/condense")).json()
        condensed = Condensed("They talked.", through=(await api.client.get(path)).json()["entries"])
        verdict = Finish(None, StopReason.END_TURN, notes=(condensed,))
        await api.store.steps.settle(await api.claim(condensing), verdict)
        for _ in range(2):
            assert_problem(await api.client.post(f"{path}/condense"), 409, "nothing_to_condense")
            await api.finish(await api.submit(agent=None, conversation_id=run["conversation_id"]))
        assert (await api.client.post(f"{path}/condense")).status_code == 202


async def test_what_is_withdrawn_is_not_condensed() -> None:
    async with world() as api:
        run = await api.submit()
        await api.finish(run)
        path = run["links"]["conversation"]
        assert (await api.client.post(f"{path}/messages", json={"input": "and?"})).status_code == 201
        assert (await api.client.post(f"{path}/withdraw", json={"after": 0})).status_code == 200
        assert_problem(await api.client.post(f"{path}/condense"), 409, "nothing_to_condense")


async def test_a_question_that_nobody_answers_leaves_no_trace() -> None:
    async with world() as api:
        run = await api.submit()
        path = run["links"]["conversation"]
        before = (await api.client.get(path)).json()
        asked = await api.client.post(f"{path}/ask", json={"question": "What is this about?", "timeout": 1})
        assert_problem(asked, 409, "no_answer")
        assert (await api.client.get(path)).json() == before
        assert len(await api.redis.keys("*:conv:*")) == len(await api.redis.keys("*:run:*")) == 1
        made = (await api.client.post("/v1/conversations")).json()
        nobody = await api.client.post(f"/v1/conversations/{made['id']}/ask", json={"question": "Who?"})
        assert_problem(nobody, 409, "no_answer")


async def test_going_back_and_forking() -> None:
    async with world() as api:
        run = await api.submit(input="first")
        path = run["links"]["conversation"]
        await api.claim(run)
        busy = await api.client.post(f"{path}/withdraw", json={"after": 0})
        assert_problem(busy, 409, "conversation_busy")
        await api.finish(run, "one")
        through = (await api.client.get(path)).json()["entries"]
        second = await api.submit(agent=None, conversation_id=run["conversation_id"], input="second")
        await api.finish(second, "two")

        asked = {"through": through, "title": "other"}
        for status in (201, 200):
            made = await api.client.post(f"{path}/fork", json=asked, headers={"Idempotency-Key": "f"})
            assert made.status_code == status, made.text
            fork = made.json()
            assert (fork["forked_from"], fork["forked_through"]) == (run["conversation_id"], through)
            assert (fork["title"], fork["agent"]["model"]) == ("other", AGENT["model"])
            assert made.headers["location"] == f"/v1/conversations/{fork['id']}"
        said = (await api.client.get(f"/v1/conversations/{fork['id']}/messages")).json()["data"]
        assert [each["content"] for each in said] == ["first", "one"]

        for replayed in (None, "true"):
            back = await api.client.post(f"{path}/withdraw", json={"after": through}, headers={"Idempotency-Key": "w"})
            assert (back.status_code, back.json()["last_outcome"]) == (200, None)
            assert back.headers.get("idempotency-replayed") == replayed
        said = (await api.client.get(f"{path}/messages")).json()["data"]
        assert [(each["content"], each["withdrawn"]) for each in said] == [
            ("first", False), ("one", False), ("second", True), ("two", True),
        ]  # fmt: skip
        for verb, field in (("withdraw", "after"), ("fork", "through")):
            refused = await api.client.post(f"{path}/{verb}", json={field: 9999})
            assert_problem(refused, 422, "unknown_position", f"/{field}")
            nowhere = await api.client.post(f"/v1/conversations/{CONVERSATION_ID}/{verb}", json={field: 0})
            assert_problem(nowhere, 404, "conversation_not_found")


async def test_a_run_without_words_needs_something_to_answer() -> None:
    async with world() as api:
        run = await api.submit()
        again = {"conversation_id": run["conversation_id"], "input": []}
        busy = await api.client.post("/v1/runs", json=again)
        assert (busy.json()["code"], busy.json()["run_id"]) == ("conversation_busy", run["id"])
        await api.finish(run)
        refused = await api.client.post("/v1/runs", json=again)
        assert (refused.status_code, refused.json()["code"]) == (409, "nothing_to_answer")
        for wrong in ({"on_conflict": "steer"}, {"start_after": "2999-01-01T00:00:00Z"}):
            assert (await api.client.post("/v1/runs", json={**again, **wrong})).json()["code"] in (
                "empty_input", "validation_error", "invalid_time",
            )  # fmt: skip
        assert_problem(await api.client.post("/v1/runs", json={"agent": AGENT, "input": []}), 422, "empty_input")
        nowhere = await api.client.post(f"/v1/conversations/{CONVERSATION_ID}/messages", json={"input": "hello?"})
        assert_problem(nowhere, 404, "conversation_not_found")


async def test_messages_are_what_was_said_in_order() -> None:
    async with world() as api:
        run = await api.submit(input="2+2?")
        call = ToolCall(id="c1", name="calculator", arguments='{"expression": "2+2"}')
        result = Message(role="tool", content="4", call_id="c1", name="calculator")
        asks = Continue(Message(role="assistant", tool_calls=(call,)), outcomes=(ToolOutcome(result),))
        await api.store.steps.settle(await api.claim(run), asks)
        await api.finish(run, "It is 4.")
        path = f"{run['links']['conversation']}/messages"
        page = (await api.client.get(path)).json()
        said = page["data"]
        assert [message["role"] for message in said] == ["user", "assistant", "tool", "assistant"]
        assert said[1]["tool_calls"] == [call.model_dump()]
        assert (said[2]["call_id"], said[2]["is_error"]) == ("c1", False)
        assert {message["run_id"] for message in said} == {run["id"]}
        assert [message["position"] for message in said] == sorted({message["position"] for message in said})
        assert page["has_more"] is False

        after, more, again = 0, True, []
        while more:
            part = (await api.client.get(f"{path}?after={after}&limit=1")).json()
            assert len(part["data"]) <= 1
            again += part["data"]
            after, more = part["next_after"], part["has_more"]
        assert again == said


@pytest.mark.parametrize(
    ("fields", "thoughts"),
    [
        ('{"reasoning_content":"Hm."}', "Hm."),
        ('{"reasoning":"Hm.","reasoning_details":[{"type":"reasoning.text","text":"Hm."}]}', "Hm."),
        ('{"reasoning_details":[{"text":"H"},{"data":"=="},{"summary":"m."}]}', "Hm."),
        ('{"extra_content":{"google":{"thought_signature":"x"}}}', ""),
    ],
)
async def test_what_the_model_thought_is_shown_to_who_asks(fields: str, thoughts: str) -> None:
    async with world() as api:
        run = await api.submit()
        opaque = Opaque("chat_completions/fake/x", fields)
        said = Message(role="assistant", content="yes")
        await api.store.steps.settle(await api.claim(run), Finish(said, StopReason.END_TURN, opaque=opaque))
        path = f"{run['links']['conversation']}/messages"
        shown = {}
        for include in ("", "?include=reasoning", "?include=opaque"):
            shown[include] = (await api.client.get(path + include)).json()["data"][-1]
        plain = shown[""]
        assert (plain["content"], plain["opaque"]) == ("yes", None)
        parts = [{"type": "reasoning", "text": thoughts}, {"type": "text", "text": "yes"}] if thoughts else "yes"
        assert shown["?include=reasoning"] == {**plain, "content": parts}
        assert shown["?include=opaque"] == {**plain, "opaque": opaque.shown()}


@pytest.mark.parametrize("conversation_id", [CONVERSATION_ID, "x", "conv_*", "%00", "run_00" + "0" * 26])
@pytest.mark.parametrize("tail", ["", "/messages"])
async def test_an_id_that_names_no_conversation_is_not_found(conversation_id: str, tail: str) -> None:
    async with world() as api:
        answer = await api.client.get(f"/v1/conversations/{conversation_id}{tail}")
        assert_problem(answer, 404, "conversation_not_found")


@in_one_world(["limit=0", "limit=501", "after=-1", "after=x"])
async def test_messages_have_strict_parameters(api: World, query: str) -> None:
    run = await api.submit()
    answer = await api.client.get(f"{run['links']['conversation']}/messages?{query}")
    assert_problem(answer, 422, "validation_error")


@in_one_world([{"agnt": {}}, {"agent": {"model": "fake/a", "max_steps": 0}}, {"agent": []}, []])
async def test_a_conversation_that_does_not_fit_is_refused(api: World, body: object) -> None:
    assert_problem(await api.client.post("/v1/conversations", json=body), 422, "validation_error")


@pytest.mark.parametrize("after", [10**6, 10**13])
async def test_behind_the_end_there_is_nothing(after: int) -> None:
    async with world() as api:
        run = await api.submit()
        await api.claim(run)
        path = f"/v1/conversations/{run['conversation_id']}/messages"
        assert (await api.client.get(f"{path}?after={after}")).json()["data"] == []
        assert_problem(await api.client.get(f"{path}?after={after * 10**8}"), 422, "validation_error", "?after")


@pytest.mark.parametrize("chosen", [str(NUMBER), NUMBER.hex, conversation_id(NUMBER, 1)])
async def test_a_conversation_has_the_id_that_its_client_chose(chosen: str) -> None:
    async with world() as api:
        first = await api.client.post("/v1/conversations", json={"id": chosen, "title": "Mine", "tags": ["a"]})
        assert first.status_code == 201
        again = await api.client.post("/v1/conversations", json={"id": chosen, "title": "Another"})
        assert again.status_code == 200
        assert again.json() == first.json()
        assert first.json()["id"] == conversation_id(NUMBER, 1)
        assert (first.json()["title"], first.json()["tags"]) == ("Mine", ["a"])


@in_one_world(["", "nonsense", "conv_07" + "0" * 26, "conv_00" + "z" * 26, "run_00" + "0" * 26])
async def test_an_id_that_is_none_is_refused(api: World, chosen: str) -> None:
    answer = await api.client.post("/v1/conversations", json={"id": chosen})
    assert_problem(answer, 422, "validation_error", "/id")


async def test_a_conversation_is_changed_by_what_is_given() -> None:
    async with world() as api:
        made = (await api.client.post("/v1/conversations", json={"title": "One", "agent": AGENT})).json()
        path = f"/v1/conversations/{made['id']}"
        answer = await api.client.patch(path, json={"title": "Two", "metadata": {"a": "b"}, "revision": 0})
        assert answer.status_code == 200
        changed = answer.json()
        assert (changed["title"], changed["metadata"], changed["agent"]) == ("Two", {"a": "b"}, made["agent"])
        assert changed["revision"] == 1
        assert_problem(await api.client.patch(path, json={"title": "x", "revision": 0}), 409, "conversation_revised")
        assert (await api.client.patch(path, json={"title": None})).json()["title"] is None
        unknown = await api.client.patch(f"/v1/conversations/{CONVERSATION_ID}", json={"title": "x"})
        assert_problem(unknown, 404, "conversation_not_found")
        assert_problem(await api.client.patch(path, json={"agent": {"model": "nobody/x"}}), 422, "unknown_provider")
        for wrong in ({"title": ""}, {"title": "x" * 201}, {"tags": ["a b"]}, {"metadata": {"a": 1}}, {"id": "x"}):
            assert (await api.client.patch(path, json=wrong)).status_code == 422, wrong


async def test_a_dialect_keeps_no_more_than_it_may() -> None:
    async with world() as api:
        texts = {"dialect": "é" * (limit_of("kept") // 2 + 1)}
        with pytest.raises(Refused):
            await operations.create_conversation(
                api.app.state.backend, NewConversation(), Caller(True), dialect_texts=texts
            )
        backend, short = api.app.state.backend, {"dialect": "{}"}
        made, _ = await operations.create_conversation(backend, NewConversation(), Caller(True), dialect_texts=short)
        with pytest.raises(Refused):
            await operations.change_conversation(
                backend, made.id, ConversationPatch(), Caller(True), dialect_texts=texts
            )
        assert (await operations.read_dialect_text(backend, made.id, "dialect")).text == "{}"


async def test_conversations_are_listed_by_what_is_known_about_them() -> None:
    async with world() as api:
        made = [
            (
                await api.client.post(
                    "/v1/conversations", json={"title": f"Nr {i}", "tags": ["even" if i % 2 == 0 else "odd"]}
                )
            ).json()
            for i in range(5)
        ]
        run = await api.submit()
        path, seen = "/v1/conversations?limit=2&tag=even&order=created", []
        while path:
            answer = await api.client.get(path)
            assert answer.status_code == 200
            page = answer.json()
            seen += [each["title"] for each in page["data"]]
            assert page["has_more"] == (page["next_cursor"] is not None)
            path = answer.links["next"]["url"] if "next" in answer.links else ""
        assert sorted(seen) == ["Nr 0", "Nr 2", "Nr 4"]
        running = (await api.client.get("/v1/conversations", params={"status": ["running", "queued"]})).json()["data"]
        assert [each["id"] for each in running] == [run["conversation_id"]]
        found = (await api.client.get("/v1/conversations", params={"title": "nR 3"})).json()["data"]
        assert found == [made[3]]
        for query, count in (("", 6), ("?tag=odd", 2), ("?status=idle", 5), ("?metadata=a=b", 0)):
            number = (await api.client.get(f"/v1/conversations/count{query}")).json()
            assert number == {"count": count, "complete": True}, query


@in_one_world(["order=title", "status=nonsense", "limit=0", "limit=201", "title=", "created_after=yesterday",
     "created_after=2026-01-02T00:00:00Z&created_before=2026-01-01T00:00:00Z", "metadata=x"])  # fmt: skip
async def test_a_filter_that_is_none_is_refused(api: World, query: str) -> None:
    assert (await api.client.get(f"/v1/conversations?{query}")).status_code == 422
    assert_problem(await api.client.get("/v1/conversations?cursor=x"), 400, "invalid_cursor")
    assert_problem(await api.client.get(f"/v1/conversations?cursor={'x' * 201}"), 400, "invalid_cursor")


async def test_several_are_read_at_once() -> None:
    async with world() as api:
        made = (await api.client.post("/v1/conversations")).json()
        found = await operations.read_conversations(api.app.state.backend, [CONVERSATION_ID, made["id"], "nonsense"])
        assert [each and each.id for each in found] == [None, made["id"], None]
        assert list(await operations.read_conversations(api.app.state.backend, ["nonsense"])) == [None]


async def test_a_conversation_is_watched_over_its_runs_and_to_its_end() -> None:
    async with world() as api:
        made = (await api.client.post("/v1/conversations", json={"agent": AGENT})).json()
        path = f"/v1/conversations/{made['id']}/events"
        stream = LiveRequest(api.app, "GET", path, {"accept": "text/event-stream"})
        for _ in range(2):
            run = await api.submit(conversation_id=made["id"])
            lease = await api.claim(run)
            await api.say(lease, "do", "ne")
            await api.finish(run, lease=lease)
            await stream.until(lambda body: body.count(b"event: run.finished") == body.count(b"event: run.created"))
        assert not stream.over
        entries = await api.store.runs.entries(made["id"])
        told = events_of((await stream.until(lambda body: body.count(b"event: run.finished") == 2)).decode())
        kept = [(number, kind) for number, kind, _ in told if number is not None and "." not in number]
        assert kept == [(str(each.position), each.type) for each in entries]
        deltas = [(number, data) for number, kind, data in told if kind == "message.delta"]
        # A watcher that is slow has deltas joined.
        assert "".join(data["text"] for _, data in deltas) == "done" * 2
        assert all(number == f"{data['position']}.{data['seq']}" for number, data in deltas)
        for number, _, data in told:
            assert str(data["position"]) == (number or "").partition(".")[0]
        number = deltas[0][0] or ""
        again = LiveRequest(api.app, "GET", f"{path}?after=1", {"accept": "text/event-stream", "last-event-id": number})
        body = await again.until(lambda body: body.count(b"event: run.finished") == 2)
        rest = events_of(body.decode())
        position = int(number.partition(".")[0])
        assert [each[0] for each in rest if "." not in (each[0] or "")] == [
            each for each, _ in kept if int(each or 0) > position
        ]
        # The run has ended: of its answer, unless a slow watcher has all of it, and of the next one, there is the text.
        transient = [(kind, data.get("text")) for number, kind, data in rest if "." in (number or "")]
        again_told = [] if deltas[0][1]["text"] == "done" else [("message.discarded", None), ("message.delta", "done")]
        assert transient == [*again_told, ("message.delta", "done")]
        await api.client.delete(f"/v1/conversations/{made['id']}")
        await stream.until(lambda _: stream.over)
        assert events_of(stream.body.decode())[-1][:2] == (None, "conversation.deleted")


async def test_a_stream_of_a_conversation_ends_with_the_process() -> None:
    async with world() as api:
        made = (await api.client.post("/v1/conversations")).json()
        stream = LiveRequest(api.app, "GET", f"/v1/conversations/{made['id']}/events", {"accept": "text/event-stream"})
        await stream.until(lambda body: b"retry" in body)
        api.app.state.backend.closing.set()
        await stream.until(lambda _: stream.over)


async def test_events_of_a_conversation_on_pages() -> None:
    async with world() as api:
        run = await api.submit()
        await api.finish(run)
        path = f"/v1/conversations/{run['conversation_id']}/events"
        entries = [each.type for each in await api.store.runs.entries(run["conversation_id"])]

        async def pages(query: str) -> list[dict[str, Any]]:
            found, after = [], "0"
            while True:
                answer = await api.client.get(f"{path}?{query}&after={after}", headers={"accept": "application/json"})
                assert answer.status_code == 200, answer.text
                page = answer.json()
                found += page["data"]
                after = str(page["next_after"])
                if not page["has_more"]:
                    return found

        for limit in (1, 2, 500):
            assert [each["type"] for each in await pages(f"limit={limit}")] == entries
            assert [each["type"] for each in await pages(f"limit={limit}&order=-position")] == entries[::-1]
            some = await pages(f"limit={limit}&types=message.created,run.finished&order=-position")
            assert [each["type"] for each in some] == ["run.finished", "message.created", "message.created"]
        headers = {"accept": "application/json"}
        for query in ("types=message.delta", "types=x", "after=x", "after=1.", "order=up", "limit=501"):
            assert (await api.client.get(f"{path}?{query}", headers=headers)).status_code == 422, query
        sse = {"accept": "text/event-stream"}
        assert_problem(await api.client.get(f"{path}?after=99", headers=sse), 400, "invalid_cursor")
        assert_problem(await api.client.get(path, headers={**sse, "last-event-id": "x"}), 400, "invalid_cursor")
        unknown = f"/v1/conversations/{CONVERSATION_ID}/events"
        assert_problem(await api.client.get(unknown, headers=sse), 404, "conversation_not_found")
        assert_problem(await api.client.get(unknown, headers=headers), 404, "conversation_not_found")


async def test_the_newest_messages_come_first() -> None:
    async with world() as api:
        run = await api.submit(input="one")
        await api.finish(run, "two")
        path = run["links"]["conversation"] + "/messages?order=-position&limit=1"
        first = (await api.client.get(path)).json()
        assert ([each["content"] for each in first["data"]], first["has_more"]) == (["two"], True)
        then = (await api.client.get(f"{path}&after={first['next_after']}")).json()
        assert [each["content"] for each in then["data"]] == ["one"]
