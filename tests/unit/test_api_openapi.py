"""The OpenAPI document: complete, and true about what the routes answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from api.app import create_app
from api.app.middleware import Access
from api.http.problems import CODES
from api.native import NATIVE
from api.native.bulk import BulkAction
from api.native.control import CancelRequest
from docs.check import links
from palaver.events import EVENTS, EventKind
from palaver.feature import features
from palaver.operations import StoredKeys
from palaver.schemas.actions import RunInput
from palaver.schemas.agents import NewAgent
from palaver.schemas.models import Retry, Submission
from palaver.store import Store
from palaver.vocabulary.lifecycle import RunStatus
from palaver.vocabulary.step_kinds import KINDS, OWN_QUEUE
from tests.feature_cases import brought_to_tests, of_the_whole
from tests.pages import ROOT
from tests.unit.api_world import SETTINGS, World, assert_problem, in_one_world, world

DOCUMENT = create_app(dialects=(NATIVE,)).openapi()
OPERATIONS = [
    (method, path, operation) for path, item in DOCUMENT["paths"].items() for method, operation in item.items()
]
OF_LINES = {"/metrics": "text/plain", "/v1/tenants/{tenant}/export": "text/x-ndjson"}
"""Routes whose answers are no JSON."""
NAMES = [f"{method} {path}" for method, path, _ in OPERATIONS]


def test_every_route_of_the_core_is_there() -> None:
    groups = {feature.group.name for feature in features().values() if feature.group}
    ungrouped = {name for names in brought_to_tests("UNGROUPED").values() for name in names}
    found = {f"{method} {path}" for method, path, each in OPERATIONS if not groups & {*each["tags"]}}
    assert ungrouped <= found
    assert sorted(found - ungrouped) == [
        "delete /v1/agents/{name}",
        "delete /v1/conversations/{conversation_id}",
        "delete /v1/keys/{api_key_id}",
        "delete /v1/runs/{run_id}",
        "get /healthz",
        "get /metrics",
        "get /readyz",
        "get /v1/agents",
        "get /v1/agents/{name}",
        "get /v1/audit",
        "get /v1/caller",
        "get /v1/conversations",
        "get /v1/conversations/count",
        "get /v1/conversations/{conversation_id}",
        "get /v1/conversations/{conversation_id}/events",
        "get /v1/conversations/{conversation_id}/messages",
        "get /v1/conversations/{conversation_id}/secrets",
        "get /v1/keys",
        "get /v1/models",
        "get /v1/queues",
        "get /v1/runs",
        "get /v1/runs/count",
        "get /v1/runs/{run_id}",
        "get /v1/runs/{run_id}/events",
        "get /v1/tenants",
        "get /v1/tenants/{tenant}",
        "get /v1/tools",
        "get /v1/usage",
        "patch /v1/conversations/{conversation_id}",
        "patch /v1/conversations/{conversation_id}/secrets",
        "patch /v1/tenants/{tenant}",
        "post /v1/conversations",
        "post /v1/conversations/{conversation_id}/ask",
        "post /v1/conversations/{conversation_id}/condense",
        "post /v1/conversations/{conversation_id}/fork",
        "post /v1/conversations/{conversation_id}/messages",
        "post /v1/conversations/{conversation_id}/withdraw",
        "post /v1/keys",
        "post /v1/keys/{api_key_id}/rotate",
        "post /v1/runs",
        "post /v1/runs/actions",
        "post /v1/runs/{run_id}/cancel",
        "post /v1/runs/{run_id}/input",
        "post /v1/runs/{run_id}/retry",
        "post /v1/tokens",
        "put /v1/agents/{name}",
    ]


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS, ids=NAMES)
def test_an_operation_is_complete(method: str, path: str, operation: dict[str, Any]) -> None:
    assert operation["summary"]
    assert operation["description"]
    statuses = {int(status) for status in operation["responses"]}
    assert {500, 503} <= statuses
    if path.startswith("/v1") or path == "/metrics":
        assert 401 in statuses
        assert operation["security"]
    in_path = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
    assert in_path == {part[1:-1] for part in path.split("/") if part.startswith("{")}
    for each in operation["parameters"]:
        assert each["description"], each
        assert each["schema"], each
    for status, answer in operation["responses"].items():
        assert answer["description"]
        if int(status) >= 400:
            assert list(answer["content"]) == ["application/problem+json"]
        elif path in OF_LINES:
            assert list(answer["content"]) == [OF_LINES[path]]
        elif int(status) != 204:
            schema = answer["content"]["application/json"]["schema"]
            assert schema.get("$ref") or all(each["$ref"] for each in schema["anyOf"])
    if "requestBody" in operation:
        assert {400, 408, 413, 415, 422} <= statuses


def test_streams_are_documented() -> None:
    for method, path in (("get", "/v1/runs/{run_id}/events"), ("post", "/v1/runs")):
        assert "text/event-stream" in DOCUMENT["paths"][path][method]["responses"]["200"]["content"]


def test_every_kind_of_event_has_its_schema_and_its_sentence() -> None:
    stream = DOCUMENT["paths"]["/v1/runs/{run_id}/events"]["get"]["responses"]["200"]["content"]["text/event-stream"]
    data = stream["schema"]["properties"]["data"]["contentSchema"]
    schemas = DOCUMENT["components"]["schemas"]
    assert schemas["EventPage"]["properties"]["data"]["items"] == data == {"$ref": "#/components/schemas/KnownEvent"}
    mapping = schemas["KnownEvent"]["discriminator"]["mapping"]
    assert set(mapping) == set(EventKind)
    for kind, reference in mapping.items():
        schema = schemas[reference.removeprefix("#/components/schemas/")]
        assert schema["properties"]["type"]["const"] == kind
        assert schema["description"] == EVENTS[kind].__doc__


def test_lists_in_a_query_are_given_as_generated_clients_give_them() -> None:
    [status] = [each for each in DOCUMENT["paths"]["/v1/runs"]["get"]["parameters"] if each["name"] == "status"]
    assert (status["style"], status["explode"]) == ("form", True)
    assert "requires_action" in status["schema"]["items"]["enum"]


def test_a_parameter_is_never_null() -> None:
    parameters = [each for _, _, operation in OPERATIONS for each in operation["parameters"]]
    assert "null" not in json.dumps(parameters)
    [error_class] = [each for each in parameters if each["name"] == "error_class"]
    assert "rate_limited" in error_class["schema"]["enum"]


def test_operations_have_names_for_generated_clients() -> None:
    names = [operation["operationId"] for _, _, operation in OPERATIONS]
    assert len(set(names)) == len(names)
    assert {"submit", "read_run", "cancel", "send_input", "retry", "act_on_runs", "delete_run"} <= set(names)


def test_every_reference_leads_somewhere() -> None:
    for reference in _references(DOCUMENT):
        assert reference.removeprefix("#/components/schemas/") in DOCUMENT["components"]["schemas"], reference


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/v1/agents/{name}", NewAgent),
        ("/v1/runs", Submission),
        ("/v1/runs/actions", BulkAction),
        ("/v1/runs/{run_id}/cancel", CancelRequest),
        ("/v1/runs/{run_id}/input", RunInput),
        ("/v1/runs/{run_id}/retry", Retry),
    ],
)
def test_the_examples_fit(path: str, model: type[BaseModel]) -> None:
    (operation,) = (each for method, each in DOCUMENT["paths"][path].items() if method in ("post", "put"))
    examples = operation["requestBody"]["content"]["application/json"]["examples"]
    assert examples
    for example in examples.values():
        model.model_validate_json(json.dumps(example["value"]))


def test_a_problem_may_list_pending_actions() -> None:
    listed = DOCUMENT["components"]["schemas"]["Problem"]["properties"]["pending_actions"]
    assert listed["items"]["$ref"].endswith("/PendingAction")


@of_the_whole
def test_the_page_names_every_route_and_every_code() -> None:
    """Or the README of a feature does, or a page that it leads to."""
    pages = {ROOT / "docs" / "reference" / "api.md"}
    for readme in (ROOT / "features").glob("*/README.md"):
        pages |= {readme, *(target for target, _ in links(readme) if target.suffix == ".md")}
    page = "\n".join(each.read_text() for each in pages)
    for method, path, _ in OPERATIONS:
        told = re.sub(r"{\w+_id}", "{id}", path)
        assert f"`{method.upper()} {told}`" in page, (method, told)
    assert [code for code in CODES if f"`{code}`" not in page] == []


def test_every_code_of_a_problem_is_told_by_some_route() -> None:
    told = json.dumps(DOCUMENT["paths"])
    beyond_routes = {"not_found", "method_not_allowed", "uri_too_long", "headers_too_large", "invalid_host"}
    beyond_routes |= {"open_address", "host_not_allowed", "origin_not_allowed"}
    assert {code for code in CODES if f"`{code}`" not in told} == beyond_routes


def test_without_keys_the_document_asks_for_none() -> None:
    assert all("security" in operation for _, path, operation in OPERATIONS if path.startswith("/v1"))
    app = create_app(SETTINGS)
    store = Store.connect(SETTINGS)
    stored = StoredKeys(store.api_keys, store.signing_keys)
    app.state.access = Access.of(SETTINGS, stored)
    open_document = app.openapi()
    assert "securitySchemes" not in open_document["components"]
    assert '"security"' not in json.dumps(open_document["paths"])


@pytest.mark.parametrize("path", ["/v1/runs/{run_id}/events", "/v1/conversations/{conversation_id}/messages"])
def test_places_have_their_bounds_in_the_document(path: str) -> None:
    parameters = {each["name"]: each["schema"] for each in DOCUMENT["paths"][path]["get"]["parameters"]}
    assert (parameters["after"]["minimum"], parameters["after"]["maximum"]) == (0, 10**13)


def test_the_statuses_of_a_filter_are_those_that_there_are() -> None:
    parameters = {each["name"]: each["schema"] for each in DOCUMENT["paths"]["/v1/runs"]["get"]["parameters"]}
    assert set(parameters["status"]["items"]["enum"]) == set(RunStatus)
    assert parameters["status"]["minItems"] == 1


@pytest.mark.parametrize(
    ("model", "field", "names"),
    [("CurrentStep", "kind", [kind.name for kind in KINDS])],
)
def test_names_that_there_are_only_so_many_of_are_in_the_document(model: str, field: str, names: list[str]) -> None:
    assert DOCUMENT["components"]["schemas"][model]["properties"][field]["enum"] == names


def test_the_name_of_a_queue_is_in_the_document() -> None:
    name = DOCUMENT["components"]["schemas"]["QueueState"]["properties"]["name"]
    assert name["pattern"] == f"^{OWN_QUEUE.pattern}$"


def test_an_answer_for_an_autoscaler_is_in_the_document() -> None:
    schema = DOCUMENT["paths"]["/v1/queues"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert [each["$ref"].rpartition("/")[2] for each in schema["anyOf"]] == ["QueueList", "ScalerValue"]


@in_one_world(["GET", "DELETE", "PUT"])
async def test_what_is_done_to_many_runs_is_no_run(api: World, method: str) -> None:
    answer = await api.client.request(method, "/v1/runs/actions")
    assert_problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"


def _references(part: object) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for value in part.values():
            yield from _references(value)
    elif isinstance(part, list):
        for value in part:
            yield from _references(value)


WHOLE = create_app().openapi()


@in_one_world([path for path in WHOLE["paths"] if "{" in path])
async def test_what_a_path_with_no_id_in_it_is_answered_is_documented(api: World, path: str) -> None:
    for method, operation in WHOLE["paths"][path].items():
        body: Any = {} if "requestBody" in operation else None
        answer = await api.client.request(method, re.sub(r"{\w+}", "no-id", path), json=body)
        assert str(answer.status_code) in operation["responses"], (method, answer.text)


async def test_a_list_in_an_address_has_the_most_that_the_document_says() -> None:
    await check_list("/v1/conversations/count", "status", "idle", 422)


async def check_list(path: str, name: str, item: str, refused: int) -> None:
    """Assert that a list of the query is taken up to its most, and else refused with this status."""
    parameters = WHOLE["paths"][path]["get"]["parameters"]
    (most,) = [each["schema"]["maxItems"] for each in parameters if each["name"] == name]
    async with world() as api:
        for number, status in ((most, 200), (most + 1, refused)):
            answer = await api.client.get(path, params=[(name, item)] * number)
            assert answer.status_code == status, (path, number, answer.text)
