"""Questions of a server to a person, as the API shows them and takes their answers: natively, to hosts of the Model
Context Protocol, and on the command line."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from palaver.schemas.actions import ServerQuestion
from palaver.steps.leases import Lease
from palaver.steps.verdicts import AskPerson
from tests.command_line import RUN, CommandResult
from tests.scripted_api import RUN_ID, ScriptedAPI, action_object, answer, run_object
from tests.unit.api_world import World, call
from tests.unit.mcp_host import hosted, run_of

_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "kind": {"type": "string", "enum": ["a", "b"]}},
    "required": ["name"],
    "additionalProperties": False,
}
_QUESTION = ServerQuestion(asker="crm", message="Which one?", form=_FORM)
_AT = ServerQuestion(asker="crm", message="Pay there.", url="https://pay.example/x")


@pytest.fixture
async def api() -> AsyncIterator[World]:
    async with hosted() as made:
        yield made


async def _claimed(api: World, run: dict[str, Any]) -> Lease:
    lease = await api.store.steps.claim(
        run["id"], run["conversation_id"], "1/c1", queues=("tools",), worker="w", nonce="n", known=None
    )
    assert isinstance(lease, Lease)
    return lease


async def _asked(api: World, question: ServerQuestion = _QUESTION, run_id: str | None = None) -> dict[str, Any]:
    """A run whose call has asked this."""
    begun = await api.submit() if run_id is None else await run_of(api, run_id)
    run = await api.ask(begun, call("c1"))
    await api.store.steps.settle(await _claimed(api, run), AskPerson(question, 60.0, "{}"))
    return await run_of(api, run["id"])


async def _answer(api: World, run: dict[str, Any], response: str, **more: Any) -> httpx.Response:
    item = {"type": "answer", "action_id": run["pending_actions"][0]["id"], "response": response, **more}
    return await api.client.post(f"{run['links']['self']}/input", json={"items": [item]})


async def test_a_question_is_shown_and_its_answer_lets_the_call_go_on(api: World) -> None:
    run = await _asked(api)
    [action] = run["pending_actions"]
    assert (run["status"], run["waiting"]["reason"], action["type"]) == ("requires_action", "question", "question")
    assert action["question"] == {"asker": "crm", "message": "Which one?", "form": _FORM, "url": None}
    done = await _answer(api, run, "accept", content={"name": "Ada"}, digest=action["digest"])
    assert (done.status_code, done.json()["status"]) == (202, "running")
    assert json.loads((await _claimed(api, run)).answer or "") == {"action": "accept", "content": {"name": "Ada"}}


async def test_an_answer_that_does_not_fit_the_form_is_refused_where_it_does_not(api: World) -> None:
    run = await _asked(api)
    wrong: list[tuple[Any, str]] = [
        ({"content": {"name": "too long"}}, "/items/0/content/name"),
        ({"content": {"name": 7}}, "/items/0/content/name"),
        ({"content": {"name": "x", "kind": "c"}}, "/items/0/content/kind"),
        ({"content": {"name": "x", "other": 1}}, "/items/0/content/other"),
        ({"content": {}}, "/items/0/content/name"),
        ({}, "/items/0/content"),
        ({"content": [1]}, "/items/0/answer/content"),
    ]
    for more, where in wrong:
        refused = await _answer(api, run, "accept", **more)
        assert refused.status_code == 422, more
        places = [error["pointer"] for error in refused.json()["errors"]]
        assert any(place.endswith(where.rpartition("/")[2]) for place in places), (more, places)
    assert (await _answer(api, run, "decline", content={"name": "x"})).status_code == 422
    assert (await run_of(api, run["id"]))["pending_actions"] == run["pending_actions"]
    assert (await _answer(api, run, "decline")).status_code == 202


async def test_an_answer_has_a_most(api: World) -> None:
    form = {"type": "object", "properties": {"text": {"type": "string"}}}
    run = await _asked(api, ServerQuestion(asker="crm", message="Which one?", form=form))
    refused = await _answer(api, run, "accept", content={"text": "x" * 32_768})
    assert refused.status_code == 422, refused.text
    assert refused.json()["errors"][0]["code"] == "too_long", refused.text
    assert (await _answer(api, run, "accept", content={"text": "x" * 30_000})).status_code == 202


async def test_an_address_is_accepted_without_content(api: World) -> None:
    run = await _asked(api, _AT)
    assert (await _answer(api, run, "accept", content={"name": "x"})).status_code == 422
    assert (await _answer(api, run, "accept")).status_code == 202
    late = await _answer(api, run, "accept")
    assert (late.status_code, late.json()["code"]) == (409, "action_already_resolved")


async def test_two_answers_to_one_question_are_refused_and_so_is_one_to_all(api: World) -> None:
    run = await _asked(api)
    item = {"type": "answer", "action_id": run["pending_actions"][0]["id"], "response": "cancel"}
    for items in ([item, item], [{**item, "action_id": "all"}]):
        refused = await api.client.post(f"{run['links']['self']}/input", json={"items": items})
        assert refused.status_code == 422


@pytest.mark.slow
def test_the_command_line_shows_who_asks_and_sends_the_answer() -> None:
    asked = {**action_object(1, "question"), "question": _QUESTION.model_dump()}
    at = {**action_object(2, "question"), "question": {**_AT.model_dump(), "message": "Pay \x1b[31mthere"}}
    with ScriptedAPI() as server:
        server.on("GET", RUN, answer(run_object("requires_action", pending_actions=[asked, at])))
        server.on("POST", f"{RUN}/input", answer(run_object("running"), 202))
        shown = CommandResult(server, "show", RUN_ID).out
        assert "  crm asks: Which one?" in shown
        assert "  name (string)" in shown
        assert "  at pay.example: https://pay.example/x" in shown
        assert "\x1b" not in shown
        assert f"  palaver answer {RUN_ID} act_1 --decline" in shown
        answers: list[tuple[list[str], dict[str, Any]]] = [
            (["act_1", '{"name": "Ada"}'], {"response": "accept", "content": {"name": "Ada"}}),
            (["act_1", "--decline"], {"response": "decline"}),
            (["act_2"], {"response": "accept"}),
        ]
        for arguments, more in answers:
            said = CommandResult(server, "answer", RUN_ID, *arguments)
            assert said.code == 0, said.err
            [item] = server.asked("POST", f"{RUN}/input")[-1].body["items"]
            digest = asked["digest"] if arguments[0] == "act_1" else at["digest"]
            assert item == {"type": "answer", "action_id": arguments[0], "digest": digest, **more}
        assert CommandResult(server, "answer", RUN_ID, "act_1", "no JSON").code == 2
