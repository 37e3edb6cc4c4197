"""What the clients do about tenants."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from palaver.client import APIError, Conflict, ConnectionFailed, NotFound, Unauthorized
from tests.both_clients import Call, async_client
from tests.scripted_api import AT, Reply, ScriptedAPI, answer, problem

ACME = "/v1/tenants/acme"
LINES = {"Content-Type": "text/x-ndjson; charset=utf-8"}


def tenant(name: str = "acme", tag: str | None = "k7m2qx", **caps: Any) -> dict[str, Any]:
    """A tenant as the API answers it."""
    return {"name": name, "tag": tag, "weight": 1, **caps}


def erasure(*, done: bool = False, unfinished_runs: int = 0) -> Reply:
    """How far an erasure is, as the API answers it."""
    body = {
        "tenant": "acme", "tag": "k7m2qx", "done": done, "began_at": AT, "ended_at": AT if done else None,
        "by": "root", "erased": {"runs": 3}, "unfinished_runs": unfinished_runs,
    }  # fmt: skip
    return answer(body)


def line(number: int) -> bytes:
    """A line of an export."""
    return json.dumps({"schema": 1, "kind": "run", "run": {"number": number}, "cursor": f"c{number}"}).encode() + b"\n"


END = json.dumps({"schema": 1, "kind": "end", "counts": {"run": 3}}).encode() + b"\n"


def export(*pieces: bytes, cut: bool = False) -> Reply:
    """An export, or a part of one, as it comes."""
    return Reply(200, headers=LINES, pieces=pieces, cut=cut)


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    with ScriptedAPI() as server:
        yield server


@async_client
def test_they_are_listed_and_read(api: ScriptedAPI, call: Call) -> None:
    api.on("GET", "/v1/tenants", answer({"data": [tenant("default", None), tenant(max_queued=7)]}))
    api.on("GET", ACME, answer(tenant(usd_per_day=2.5)))
    api.on("GET", "/v1/tenants/nobody", problem(404, "tenant_not_found"))
    assert [(each.name, each.tag, each.max_queued) for each in call(api.url, "tenants")] == [
        ("default", None, None),
        ("acme", "k7m2qx", 7),
    ]
    assert call(api.url, "tenant", "acme").usd_per_day == 2.5
    with pytest.raises(NotFound):
        call(api.url, "tenant", "nobody")


@async_client
def test_caps_are_changed_and_what_is_left_out_is_not_sent(api: ScriptedAPI, call: Call) -> None:
    api.on("PATCH", ACME, Reply(cut=True), answer(tenant(weight=3)), problem(403, "operators_only"))
    assert call(api.url, "set_caps", "acme", weight=3, usd_per_month=None).weight == 3
    assert [seen.body for seen in api.seen] == [{"weight": 3, "usd_per_month": None}] * 2
    with pytest.raises(Unauthorized):
        call(api.url, "set_caps", "acme", max_queued=1)
    with pytest.raises(TypeError, match=r"there is no argument .wieght.; did you mean weight"):
        call(api.url, "set_caps", "acme", wieght=1)


@async_client
def test_an_export_goes_on_behind_the_last_whole_line(api: ScriptedAPI, call: Call) -> None:
    second, third = line(2), line(3)
    api.on(
        "GET",
        f"{ACME}/export",
        export(line(1), second[:20], cut=True),
        export(second + third[:-1], cut=True),
        export(third, END),
    )
    entries = call(api.url, "export_tenant", "acme")
    assert [entry.get("run", {}).get("number", entry["kind"]) for entry in entries] == [1, 2, 3, "end"]
    assert [dict(seen.query) for seen in api.seen] == [{}, {"cursor": "c1"}, {"cursor": "c2"}]


@async_client
def test_an_export_that_brings_nothing_is_given_up(api: ScriptedAPI, call: Call) -> None:
    """The first one ends as if it were whole, but without the line that counts."""
    api.on("GET", f"{ACME}/export", export(line(1)), *[export(b"{", cut=True)] * 4)
    with pytest.raises(ConnectionFailed):
        call(api.url, "export_tenant", "acme")
    assert [seen.query.get("cursor") for seen in api.seen] == [None, "c1", "c1", "c1"]


@async_client
@pytest.mark.parametrize("body", [b"[]\n", b"{}\n", b"<html>\n"])
def test_what_is_no_export_is_said(api: ScriptedAPI, call: Call, body: bytes) -> None:
    api.on("GET", f"{ACME}/export", export(body), answer({"data": []}))
    for _ in range(2):
        with pytest.raises(APIError, match="not Palaver's API"):
            call(api.url, "export_tenant", "acme")


@async_client
def test_an_erasure_is_asked_for_until_it_is_done(api: ScriptedAPI, call: Call) -> None:
    """By the tag: once it is done, the name may be another tenant's."""
    api.on("GET", ACME, answer(tenant()))
    replies = erasure(), erasure(unfinished_runs=2), Reply(cut=True), erasure(done=True)
    api.on("POST", f"{ACME}/erase", *replies)
    receipt = call(api.url, "erase_tenant", "acme")
    assert (receipt.done, receipt.erased.runs) == (True, 3)
    assert [dict(seen.query) for seen in api.seen[1:]] == [{"tag": "k7m2qx"}] * 4


@async_client
def test_an_erasure_that_began_goes_on_and_the_default_tenant_stays(api: ScriptedAPI, call: Call) -> None:
    api.on("GET", ACME, problem(404, "tenant_not_found"))
    api.on("POST", f"{ACME}/erase", erasure(), erasure(done=True))
    assert call(api.url, "erase_tenant", "acme").done
    assert [dict(seen.query) for seen in api.seen[1:]] == [{}, {"tag": "k7m2qx"}]
    api.on("GET", "/v1/tenants/default", answer(tenant("default", None)))
    api.on("POST", "/v1/tenants/default/erase", problem(409, "default_tenant"))
    with pytest.raises(Conflict):
        call(api.url, "erase_tenant", "default")
