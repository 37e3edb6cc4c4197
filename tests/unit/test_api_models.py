"""``GET /v1/models``: what runs may name, what it costs, and whether workers can ask it."""

from __future__ import annotations

from typing import Any

from palaver.config.providers import Provider
from palaver.store.fleet.fleet import WorkerReport
from tests.unit.api_world import World, assert_problem, in_one_world, world

URL, PLAIN = "https://me:secret-of-a-url@models.example/v1", "https://models.example/v1"
PRICES = {"large": {"input": 2.0, "output": 8.0, "cached_input": 0.5}, "*": {"input": 5.0, "output": 15.0}}
PROVIDERS = {
    "b": Provider.model_validate({"base_url": URL, "models": ("small", "org/large"), "max_in_flight": 3}),
    "a": Provider.model_validate({"base_url": PLAIN, "api_key_env": "KEY_OF_A", "prices": PRICES}),
}
IDS = ["a/*", "a/large", "b/*", "b/org/large", "b/small"]


async def listed(api: World, query: str = "") -> dict[str, Any]:
    answer = await api.client.get(f"/v1/models{query}")
    assert answer.status_code == 200, answer.text
    assert "secret-of-a-url" not in answer.text
    found: dict[str, Any] = answer.json()
    return found


async def tells(api: World, *providers: str) -> None:
    await api.store.fleet.report(WorkerReport("w", ("model",), 0, 1, draining=False, providers=providers))


async def test_each_model_is_there_with_what_the_table_says() -> None:
    async with world(providers=PROVIDERS) as api:
        await tells(api, "a")
        page = await listed(api)
        assert [each["id"] for each in page["data"]] == IDS
        assert (page["next_cursor"], page["has_more"]) == (None, False)
        assert page["data"][1] == {
            "id": "a/large",
            "provider": "a",
            "name": "large",
            "protocol": "chat_completions",
            "callable": True,
            "cooling_until": None,
            "max_in_flight": None,
            "requests_per_minute": None,
            "tokens_per_minute": None,
            "price": {"input": 2.0, "output": 8.0, "cached_input": 0.5, "cache_write": None},
        }
        assert page["data"][0]["price"]["input"] == 5.0
        assert [each["price"] for each in page["data"][2:]] == [None, None, None]
        assert {each["max_in_flight"] for each in page["data"][2:]} == {3}


async def test_it_says_whether_workers_can_ask_it() -> None:
    async with world(providers=PROVIDERS) as api:
        assert {each["callable"] for each in (await listed(api))["data"]} == {False}
        await tells(api, "b")
        assert {each["provider"]: each["callable"] for each in (await listed(api))["data"]} == {"a": False, "b": True}


async def test_a_provider_that_is_left_alone_says_until_when() -> None:
    async with world(providers=PROVIDERS) as api:
        await api.store.providers.cool_down("b", 60)
        cooling = {each["id"] for each in (await listed(api))["data"] if each["cooling_until"]}
        assert cooling == {"b/*", "b/org/large", "b/small"}


@in_one_world([1, 2, 3, 4, 5, 6], providers=PROVIDERS)
async def test_pages_follow_each_other(api: World, size: int) -> None:
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        answer = await api.client.get("/v1/models", params={"limit": size, "cursor": cursor})
        page = answer.json()
        assert 0 < len(page["data"]) <= size
        seen += [each["id"] for each in page["data"]]
        cursor = page["next_cursor"]
        assert page["has_more"] == (cursor is not None)
        assert ("link" in answer.headers) == (cursor is not None)
    assert seen == IDS


async def test_a_link_leads_to_the_next_page() -> None:
    async with world(providers=PROVIDERS) as api:
        first = await api.client.get("/v1/models?limit=3")
        path = first.headers["link"].partition(">")[0].removeprefix("<")
        assert [each["id"] for each in (await api.client.get(path)).json()["data"]] == IDS[3:]


@in_one_world(["nonsense", "é", "YWJj", "=", "x" * 5000], providers=PROVIDERS)
async def test_a_cursor_of_something_else_is_refused(api: World, cursor: str) -> None:
    answer = await api.client.get("/v1/models", params={"cursor": cursor})
    assert_problem(answer, 400, "invalid_cursor")


async def test_without_providers_there_is_none() -> None:
    async with world(providers={}) as api:
        assert await listed(api) == {"data": [], "next_cursor": None, "has_more": False}
