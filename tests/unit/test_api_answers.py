"""What the API answers is what its document says, field by field, and the SDK has a place for each field."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from pydantic import BaseModel

from api.app import create_app
from api.native import NATIVE
from palaver.client import answers
from palaver.errors import ErrorClass
from palaver.errors.failure import ErrorObject, ProviderObject
from palaver.events import classes as events
from palaver.schemas import (
    actions,
    content,
    conversation,
    current_steps,
    mcp_servers,
    model_options,
    models,
    stuck_limits,
)
from palaver.schemas.models import Message, ToolCall
from palaver.steps.verdicts import Continue, OpenCall, ToolOutcome
from tests.unit.api_world import world

DOCUMENT = create_app(dialects=(NATIVE,)).openapi()
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
MODULES = (
    actions,
    answers,
    content,
    conversation,
    current_steps,
    events,
    mcp_servers,
    model_options,
    models,
    stuck_limits,
)
CLASSES = {
    name: found
    for module in MODULES
    for name, found in vars(module).items()
    if isinstance(found, type) and issubclass(found, BaseModel)
}
EVENT_CLASSES = {each.__name__ for each in events.EVENTS.values()}
TYPED = {"ErrorObject": ErrorObject, "ProviderObject": ProviderObject}
PAGES = {"RunList", "ConversationPage", "ConversationEventPage", "MessagePage", "EventPage"}
TAKEN_CARE_OF = {"Run": {"links"}, "BulkResult": {"next_cursor"}}
"""The methods of the SDK are the links, and it follows cursors itself."""


def _fields_of(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


def _answered(*tags: str) -> set[str]:
    """The names of all schemas that are part of an answer of routes with these tags."""
    found: set[str] = set()
    ahead: list[object] = [
        answer
        for methods in DOCUMENT["paths"].values()
        for operation in methods.values()
        for status, answer in operation["responses"].items()
        if int(status) < 300 and operation["tags"][0] in tags
    ]
    while ahead:
        match ahead.pop():
            case {"$ref": str(reference)} if (name := reference.rpartition("/")[2]) not in found:
                found.add(name)
                ahead.append(SCHEMAS[name])
            case dict() as part:
                ahead += part.values()
            case list() as parts:
                ahead += parts
    return found


TYPED_BY_THE_SDK = _answered("runs", "conversations")
"""What is for operators it gives as it came, or not at all."""
ALL = TYPED_BY_THE_SDK | _answered("operations")


MAY_BE_ABSENT = {
    "Conversation": {"archived"},
    "QueueList": {"archive"},
    "Readiness": {"archive"},
    "Run": {"archived"},
    "RunCount": {"complete"},
}
"""What is there with an archive alone: without one, answers are as they were."""


def test_every_field_of_an_answer_is_always_there() -> None:
    for name in sorted(name for name in ALL if "properties" in SCHEMAS[name]):
        schema = SCHEMAS[name]
        # Events have their position where they are told of a conversation.
        elsewhere = {"position"} if name in EVENT_CLASSES else MAY_BE_ABSENT.get(name, set())
        assert sorted(schema.get("required", ())) == sorted(schema["properties"].keys() - elsewhere), name


def test_the_sdk_loses_no_field() -> None:
    for name in sorted(name for name in TYPED_BY_THE_SDK - PAGES - {"Links"} if "properties" in SCHEMAS[name]):
        fields = TYPED[name].__annotations__.keys() if name in TYPED else _fields_of(CLASSES[name])
        assert SCHEMAS[name]["properties"].keys() - TAKEN_CARE_OF.get(name, set()) == fields, name


def test_what_may_be_left_out_of_a_body_has_no_default_in_the_document() -> None:
    """`openapi-typescript` takes a field with a default for one that is always there."""
    bodies = {name: schema for name, schema in SCHEMAS.items() if name not in ALL and name != "Problem"}
    assert {"Submission", "AgentSpecInput", "RunInput", "CancelRequest"} <= bodies.keys()
    fields = [field for schema in bodies.values() for field in schema.get("properties", {}).values()]
    assert not [field for field in fields if "default" in field]
    assert SCHEMAS["AgentSpecInput"]["required"] == ["model"]
    assert SCHEMAS["AgentSpecInput"]["properties"]["max_steps"]["description"] == "Default: `100`."


def test_a_schema_has_the_title_that_a_generator_may_name_a_class_by() -> None:
    assert {name: schema.get("title", name) for name, schema in SCHEMAS.items()} == {name: name for name in SCHEMAS}


def test_names_of_error_classes_are_closed_lists() -> None:
    for schema in (
        SCHEMAS["ErrorObject"]["properties"]["class"],
        *SCHEMAS["Waiting"]["properties"]["error_class"]["anyOf"],
    ):
        assert schema == {"type": "null"} or schema["enum"] == [*ErrorClass]


def _fits(name: str, body: object) -> None:
    schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    jsonschema_rs.validator_for(schema).validate(body)


@pytest.mark.slow
async def test_answers_have_every_field_that_the_document_says() -> None:
    async with world() as api:
        run = await api.submit()
        call = ToolCall(id="c1", name="crash")
        asked = Message(role="assistant", tool_calls=(call,))
        told = ToolOutcome(Message(role="tool", call_id="c1", name="crash", content="no"))
        await api.store.steps.settle(await api.claim(run), Continue(asked, (told,)))
        await api.fail(run)
        second = await api.submit(
            agent={"model": "fake/echo", "tools": ["calculator"], "approvals": {"require": "always"}}
        )
        waits = OpenCall(ToolCall(id="c2", name="calculator"), idempotent=True, awaits="approval", timeout=60)
        _fits("Run", await api.ask(second, waits))
        for path, name in (
            (run["links"]["self"], "Run"),
            ("/v1/runs", "RunList"),
            (run["links"]["conversation"], "Conversation"),
            (f"{run['links']['conversation']}/messages", "MessagePage"),
            ("/v1/models", "ModelList"),
            ("/v1/tools", "ToolList"),
            ("/v1/queues", "QueueList"),
        ):
            _fits(name, (await api.client.get(path)).json())
        for each in (run, second):
            page = (await api.client.get(each["links"]["events"], headers={"Accept": "application/json"})).json()
            _fits("EventPage", page)
        page = (await api.client.get(run["links"]["events"], headers={"Accept": "application/json"})).json()
        [message] = [each["message"] for each in page["data"] if each.get("message", {}).get("role") == "assistant"]
        assert (message["content"], message["tool_calls"]) == ("", [{"id": "c1", "name": "crash", "arguments": "{}"}])


async def test_a_stream_has_the_same_fields() -> None:
    async with world() as api:
        run = await api.submit()
        await api.store.steps.settle(
            await api.claim(run),
            Continue(
                Message(role="assistant", tool_calls=(ToolCall(id="c1", name="x"),)),
                (ToolOutcome(Message(role="tool", call_id="c1", name="x", content="no")),),
            ),
        )
        await api.fail(run)
        streamed = (await api.client.get(run["links"]["events"])).text
        page = (await api.client.get(run["links"]["events"], headers={"Accept": "application/json"})).text
        for line in streamed.splitlines():
            if line.startswith("data: "):
                assert line.removeprefix("data: ") in page
