"""What a route takes is said once, by the parameters of its handler: what cannot be, is no route."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from api.http.headers import EVENT_STREAM, JSON, IdempotencyKey, Offers
from api.http.queries import Query, read_query
from api.kit.signatures import InPath, Takes
from palaver.errors import Refused
from palaver.operations import Backend, Caller
from palaver.schemas.fields import Strict
from tests.unit.api_world import CONVERSATION_ID, RUN_ID, World, assert_problem, in_one_world, world


class Colour(Query):
    """Which one."""

    name: str = "red"


class Wish(Strict):
    """What to do."""

    what: str = ""


class Search(Query):
    """For what."""

    text: str


def test_who_gives_no_parameters_gets_the_usual_ones() -> None:
    """They are read once, and a parameter that has to be given is missed as ever."""
    request = Request({"type": "http", "query_string": b"", "headers": []})
    assert read_query(request, Colour) == Colour(name="red")
    assert read_query(request, Colour) is read_query(request, Colour)
    with pytest.raises(Refused):
        read_query(request, Search)


async def _handler(
    backend: Backend,
    caller: Caller,
    run_id: Annotated[str, InPath("The run.")],
    kind: Annotated[str, Offers((JSON, EVENT_STREAM))],
    key: IdempotencyKey,
    colour: Colour,
    wish: Wish,
) -> Response:
    raise NotImplementedError


async def _lenient(wish: Wish = Wish()) -> Response:  # noqa: B008
    raise NotImplementedError


async def _odd(number: int) -> Response:
    raise NotImplementedError


def test_all_that_a_handler_takes_is_found() -> None:
    takes = Takes.of(_handler, "/v1/runs/{run_id:run}/x", ("runs:read",))
    assert {name: part.description for name, part in takes.path.items()} == {"run_id": "The run."}
    assert [header.name for header in takes.headers] == ["Idempotency-Key"]
    assert (takes.query, takes.body, takes.body_required, takes.probe) == (Colour, Wish, True, False)
    assert takes.offers is not None
    assert takes.offers.kinds == (JSON, EVENT_STREAM)
    assert set(takes.readers) == {"backend", "caller", "run_id", "kind", "key", "colour"}
    assert not Takes.of(_lenient, "/x", ("runs:read",)).probe
    assert not Takes.of(_lenient, "/x").body_required
    assert Takes.of(_lenient, "/healthz").probe


@pytest.mark.parametrize(
    ("handler", "path", "says"),
    [
        (_odd, "/x", "_odd has a parameter number that no request has"),
        (_handler, "/x", r"_handler takes \['run_id'\] of /x"),
        (_lenient, "/x/{run_id}", r"_lenient takes \[\] of /x/{run_id}"),
    ],
)
def test_what_no_request_has_is_told_when_the_route_is_declared(handler: Any, path: str, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        Takes.of(handler, path)


@in_one_world(
    [
        ("POST", "/v1/runs", {"agent": {"model": "fake/echo"}, "input": "x"}),
        ("POST", f"/v1/runs/{RUN_ID}/cancel", None),
        ("POST", f"/v1/runs/{RUN_ID}/input", {"items": [{"type": "pause"}]}),
        ("POST", f"/v1/runs/{RUN_ID}/retry", None),
        ("POST", "/v1/conversations", None),
        ("DELETE", f"/v1/runs/{RUN_ID}", None),
        ("DELETE", f"/v1/conversations/{CONVERSATION_ID}", None),
        ("GET", f"/v1/conversations/{CONVERSATION_ID}", None),
    ]
)
async def test_a_route_refuses_parameters_and_media_types_that_it_does_not_declare(
    api: World, method: str, path: str, body: dict[str, Any] | None
) -> None:
    answer = await api.client.request(method, f"{path}?x=1", json=body)
    assert_problem(answer, 400, "unknown_parameter", "?x")
    answer = await api.client.request(method, path, json=body, headers={"Accept": "text/html"})
    if method == "DELETE":  # answers with nothing, in any type
        assert answer.status_code == 404
    else:
        assert_problem(answer, 406, "not_acceptable")


async def test_a_probe_answers_whatever_else_is_asked() -> None:
    async with world() as api:
        for path in ("/healthz", "/readyz"):
            assert (await api.client.get(f"{path}?x=1", headers={"Accept": "text/html"})).status_code == 200
