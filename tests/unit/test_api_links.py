"""Below a proxy's prefix each route that says where something is says it below that: whichever route it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.feature_cases import brought_to_tests
from tests.unit.api_world import AGENT, PROVIDERS, World
from tests.unit.test_api_tenants import OPERATIONS
from tests.unit.two_tenants import Operation, asking_as, furnish, tenants

ROOT: Final = "/agents/palaver"
NATIVE: Final = Path(__file__).parents[2] / "api" / "native"
SAYS: Final = [
    each
    for each in OPERATIONS
    if any(re.search("`(Location|Link)`", answer["description"]) for answer in each.described["responses"].values())
]
"""The routes whose description says that they do."""


async def _prepared(api: World) -> Mapping[str, str]:
    """Let there be two of whatever is listed; the names of what a path may name."""
    client, store = api.client, api.store
    failed = await api.submit()
    await api.fail(failed)
    talk = await api.submit()
    await api.finish(talk)
    await api.finish(await api.submit(agent=None, conversation_id=talk["conversation_id"]))
    for name in ("one", "two"):
        assert (await client.put(f"/v1/agents/{name}", json=AGENT)).status_code == 201
    names: dict[str, str] = {}
    for enlist in brought_to_tests("enlist", "tenants").values():
        names |= await enlist(api)
    (key, *_) = [record for record, _ in await store.api_keys.list("")]
    return {
        **names,
        "run_id": failed["id"],
        "conversation_id": talk["conversation_id"],
        "name": "two",
        "api_key_id": key.id,
    }


async def _asked(client: httpx.AsyncClient, operation: Operation, names: Mapping[str, str]) -> httpx.Response:
    """Ask for what is there, with a page of one; or for something new."""
    named = {**names, "name": "three"} if operation.method == "PUT" else names
    path = ROOT + re.sub(r"{(\w+)}", lambda part: named[part[1]], operation.path)
    if operation.method == "GET":
        return await client.get(path, params={"limit": 1})
    examples = operation.described["requestBody"]["content"] if "requestBody" in operation.described else {}
    content: Mapping[str, Any] = examples.get("application/json", {}).get("examples", {})
    body = {} if operation.path.endswith("/retry") else next((each["value"] for each in content.values()), None)
    return await client.request(operation.method, path, json=body)


@pytest.mark.slow
async def test_whatever_says_where_something_is_says_it_below_the_root() -> None:
    """A route that is not answered as it says wants something that `_prepared` has to prepare."""
    async with tenants(providers={**PROVIDERS, "other": PROVIDERS["fake"]}) as api:
        await furnish(api, "default")
        with asking_as(api, "default"):
            names = await _prepared(api)

        async def below(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
            await api.app(scope | {"root_path": ROOT}, receive, send)

        transport = httpx.ASGITransport(app=below)
        async with httpx.AsyncClient(transport=transport, base_url=api.client.base_url) as client:
            client.headers["authorization"] = "Bearer default"
            places = {}
            for operation in sorted(SAYS, key=lambda each: each.method != "GET"):
                answer = await _asked(client, operation, names)
                place = answer.headers.get("location") or answer.links.get("next", {}).get("url")
                assert place is not None, f"{operation.id}: {answer.status_code} {answer.text}"
                places[operation.id] = str(place)
            astray = {who: place for who, place in places.items() if not place.startswith(f"{ROOT}/v1/")}
            assert astray == {}
            for who, place in places.items():
                if "/v1/keys" not in place:
                    assert (await client.get(place)).status_code == 200, (who, place)


def test_no_route_writes_such_a_header_by_itself() -> None:
    written = [path.name for path in NATIVE.glob("*.py") if re.search('"(Location|Link)"', path.read_text())]
    assert written == ["links.py"]
