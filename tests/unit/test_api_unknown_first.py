"""What a path names and is not there is said before anything that is wrong with the rest of a request, in each
dialect."""

from __future__ import annotations

import re
from typing import Any, Final

from tests.unit.api_world import World, in_one_world, world
from tests.unit.test_api_scopes import CLOSED, DOCUMENT, bearer, filled

MAY_BE_NEW: Final = {"name", "chat_id", "thread_id"}
"""Parts of a path that may name something new."""
BODIES: Final[list[Any]] = [
    [], 7, {}, {"content": 7}, {"content": ""}, {"title": "x" * 5000}, {"tags": {"": "x"}}, {"metadata": 7},
    {"question": ""}, {"items": [{"type": "nothing"}]}, {"secrets": {"": ""}}, {"reason": "x" * 5000, "accept": False},
]  # fmt: skip
"""Bodies that do not fit, at once or once they are looked at; some fit some routes."""
ROUTES: Final = [
    (method.upper(), path, operation)
    for path, methods in DOCUMENT.items()
    for method, operation in methods.items()
    if (parts := set(re.findall(r"{(\w+)}", path))) and not parts & MAY_BE_NEW
]
WITH_BODY: Final = [(method, path) for method, path, operation in ROUTES if "requestBody" in operation]
WITH_QUERY: Final = [
    (method, path, [each["name"] for each in operation["parameters"] if each["in"] == "query"])
    for method, path, operation in ROUTES
    if any(each["in"] == "query" for each in operation["parameters"])
]
SPOKEN: Final = {path.split("/")[1] for path in DOCUMENT}
"""Beginnings of paths: of each dialect one at least."""


def test_the_tables_have_the_routes_of_each_dialect() -> None:
    for routes in (WITH_BODY, WITH_QUERY):
        assert {path.split("/")[1] for _, path, *_ in routes} >= {"v1", "openai", "openhands"} & SPOKEN


@in_one_world(WITH_BODY, CLOSED)
async def test_what_is_not_there_is_said_before_what_is_wrong_with_a_body(api: World, method: str, path: str) -> None:
    headers = await bearer(api, operator=True)
    for body in BODIES:
        answer = await api.client.request(method, filled(path), json=body, headers=headers)
        assert answer.status_code == 404, (body, answer.text)


@in_one_world(WITH_QUERY, CLOSED)
async def test_what_is_not_there_is_said_before_what_is_wrong_with_a_query(
    api: World, method: str, path: str, names: list[str]
) -> None:
    headers = await bearer(api, operator=True)
    for name in names:
        answer = await api.client.request(method, filled(path), params={name: "\x00"}, headers=headers)
        assert answer.status_code == 404, (name, answer.text)


async def test_a_key_that_is_held_elsewhere_learns_nothing_by_what_does_not_fit() -> None:
    async with world() as api:
        own, other = [(await api.submit()) for _ in range(2)]
        headers = await bearer(api, conversation=own["conversation_id"])
        seen = set()
        unknown = own["id"][:-1] + ("y" if own["id"].endswith("z") else "z")
        for run_id in (other["id"], unknown):
            answer = await api.client.get(f"/v1/runs/{run_id}?wait=x", headers=headers)
            seen.add((answer.status_code, answer.json()["code"]))
        assert seen == {(404, "run_not_found")}
