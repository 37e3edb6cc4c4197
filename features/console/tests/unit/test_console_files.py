"""The console's files: what browsers are told about them, and that there is nothing else below ``/console``."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import AsyncIterator
from graphlib import TopologicalSorter
from pathlib import Path

import httpx
import pytest

import features.console.dialect
from api.app.installed import dialects_of
from features.console import CONSOLE
from features.console.dialect import _pages, _without
from features.console.files import fingerprint, read_folder
from palaver import feature
from palaver.config.settings import Settings
from palaver.errors import FACTS, ErrorClass, Failure
from palaver.steps.retry import stop_reason
from palaver.vocabulary.lifecycle import WaitReason
from tests.unit.api_world import World, assert_problem, in_one_world, world

STATIC = Path(features.console.dialect.__file__).with_name("static")
VENDORED = STATIC / "vendor"
KEYED = Settings(redis_url="redis://fake/0", api_keys="key-of-the-operators", console=True)
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
ASSETS = [path for path in CONSOLE.pages if "/assets/" in path]
OURS = [path for path in STATIC.rglob("*") if path.suffix in {".js", ".html", ".css"} and VENDORED not in path.parents]


@pytest.fixture
async def keyed() -> AsyncIterator[World]:
    async with world(KEYED, dialects=dialects_of(("native",), console=True)) as api:
        yield api


@in_one_world(["/console", *ASSETS], KEYED, dialects=dialects_of(("native",), console=True))
async def test_each_file_is_there_for_who_has_no_key(keyed: World, path: str) -> None:
    answer = await keyed.client.get(path)
    kind = {"": "html", ".html": "html", ".js": "javascript", ".mjs": "javascript", ".css": "css", ".svg": "svg"}[
        Path(path).suffix
    ]
    assert (answer.status_code, kind in answer.headers["content-type"]) == (200, True)
    told = {name: answer.headers[name] for name in ("content-security-policy", "x-content-type-options")}
    assert told == {"content-security-policy": POLICY, "x-content-type-options": "nosniff"}
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    for_ever = "public, max-age=31536000, immutable"
    assert answer.headers["cache-control"] == ("no-cache" if path == "/console" else for_ever)


async def test_it_is_packed_and_asked_for_once(keyed: World) -> None:
    path = next(path for path in ASSETS if path.endswith("app.css"))
    async with keyed.client.stream("GET", path, headers={"Accept-Encoding": "gzip"}) as packed:
        content = b"".join([piece async for piece in packed.aiter_raw()])
    plain = await keyed.client.get(path, headers={"Accept-Encoding": "identity"})
    assert gzip.decompress(content) == plain.content == (STATIC / "app.css").read_bytes()
    tag = plain.headers["etag"]
    for known in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
        again = await keyed.client.get(path, headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert (await keyed.client.get(path, headers={"If-None-Match": '"other"'})).status_code == 200


async def test_a_key_with_few_scopes_reads_them_too(keyed: World) -> None:
    bearer = {"Authorization": "Bearer key-of-the-operators"}
    made = await keyed.client.post("/v1/keys", json={"name": "few", "scopes": ["runs:read"]}, headers=bearer)
    few = {"Authorization": f"Bearer {made.json()['key']}"}
    assert [(await keyed.client.get(path, headers=few)).status_code for path in ("/console", ASSETS[0])] == [200, 200]


@in_one_world(
    [
        "/console/assets/", "/console/assets/../dialect.py", "/console/assets/%2e%2e/dialect.py", "/console/dialect.py",
        "/console/assets/0000000000000000/app.js", f"{ASSETS[0]}/..%2f..%2fdialect.py", f"{ASSETS[0]}%00", "/Console",
        f"{ASSETS[0].rpartition('/')[0]}/../../../../../../etc/passwd", f"{ASSETS[0]}/", "/consoles", "/console/x",
        f"{ASSETS[0].rpartition('/')[0]}/vendor/manifest.json", f"{ASSETS[0].rpartition('/')[0]}/index.html",
    ],
    KEYED,
    dialects=dialects_of(("native",), console=True),
)  # fmt: skip
async def test_nothing_else_is_there(keyed: World, path: str) -> None:
    assert_problem(await keyed.client.get(path), 401, "unauthenticated")
    bearer = {"Authorization": "Bearer key-of-the-operators"}
    assert_problem(await keyed.client.get(path, headers=bearer), 404, "not_found")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_a_page_is_only_read(keyed: World, method: str) -> None:
    answer = await keyed.client.request(method, "/console")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


async def test_it_is_not_in_the_document(keyed: World) -> None:
    bearer = {"Authorization": "Bearer key-of-the-operators"}
    document = (await keyed.client.get("/openapi.json", headers=bearer)).json()
    assert not [path for path in document["paths"] if "console" in path]
    assert "console" not in {tag["name"] for tag in document["tags"]}


async def test_all_addresses_are_relative(keyed: World) -> None:
    page = (await keyed.client.get("/console")).text
    named = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert named
    assert {f"/{address}" for address in named} <= {*ASSETS}
    lead = await keyed.client.get("/console/")
    assert (lead.status_code, lead.headers["location"]) == (307, "../console")


@pytest.mark.parametrize(
    ("path", "leads"),
    [
        ("/console/runs/run_00abc", "../../console#/runs/run_00abc"),
        ("/console/conversations/conv_00abc", "../../console#/conversations/conv_00abc"),
        ("/console/agents/a%20b%23c", "../../console#/agents/a%20b%23c"),
        ("/console/runs", "../console#/runs"),
        ("/console/runs?status=failed&q=a%20b", "../console#/runs?status=failed&q=a%20b"),
        ("/console/playground", "../console#/playground"),
        ("/console/runs/", "../../console#/runs"),
    ],
)
async def test_its_own_paths_lead_to_its_pages(keyed: World, path: str, leads: str) -> None:
    """Without a key, as a browser follows a link."""
    lead = await keyed.client.get(path)
    assert (lead.status_code, lead.headers["location"]) == (307, leads)
    assert (await keyed.client.post(path)).status_code == 405


@pytest.mark.parametrize("path", ["/v1/runs/run_00abc", "/console/runs/run_00abc/events", "/console/nothing/a"])
async def test_other_paths_are_problems(keyed: World, path: str) -> None:
    assert_problem(await keyed.client.get(path), 401, "unauthenticated")
    bearer = {"Authorization": "Bearer key-of-the-operators"}
    code = "run_not_found" if path.startswith("/v1") else "not_found"
    assert_problem(await keyed.client.get(path, headers=bearer), 404, code)


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.relative_to(STATIC).as_posix())
def test_a_file_asks_nobody_else_and_makes_no_markup_of_texts(path: Path) -> None:
    text = path.read_text()
    makes = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|dangerouslySet|javascript:"
    assert re.findall(rf"{makes}|localStorage|document\.cookie|https?://[a-z0-9]", text) == []
    assert len(text.splitlines()) < 300
    for imported in re.findall(r'(?:from|import\()\s*"([^"]+)"', text):
        assert (path.parent / imported).resolve().is_file(), imported


def test_vendored_files_are_those_of_their_packages() -> None:
    packages = json.loads((VENDORED / "manifest.json").read_text())["packages"]
    listed = {name: file["sha256"] for package in packages for name, file in package["files"].items()}
    there = {path.relative_to(VENDORED).as_posix(): path for path in VENDORED.rglob("*") if path.is_file()}
    there.pop("manifest.json")
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in there.items()} == listed


def test_runs_are_found_by_each_class_that_they_fail_with() -> None:
    (listed,) = re.findall(
        r"export const ERRORS = \[(.*?)\];", (STATIC / "pages/runs/filters.js").read_text(), re.DOTALL
    )
    failing = [each for each in ErrorClass if not FACTS[each].recoverable and stop_reason(Failure.of(each)) == "error"]
    assert re.findall(r'"(\w+)"', listed) == failing


def test_each_reason_to_wait_has_its_words() -> None:
    (words,) = re.findall(
        r"^const WAITS = \{\n(.*?)^\};", (STATIC / "lib/situation.js").read_text(), re.DOTALL | re.MULTILINE
    )
    assert {*re.findall(r"^  (\w+): \(", words, re.MULTILINE)} == {*WaitReason}


def test_no_module_names_a_package() -> None:
    served = read_folder(STATIC)
    names = [name for name in served if name.endswith("js")]
    imported = {text for name in names for text in re.findall(r'(?:from|import)\s*\(?"([^"]+)"', served[name].decode())}
    assert imported
    assert all(address.startswith(("./", "../")) for address in imported)


def test_a_folder_has_another_name_when_anything_in_it_is_another() -> None:
    names = [fingerprint(files) for files in ({"a": b"b"}, {"ab": b""}, {"a": b"c"}, {"a": b"b", "c": b""})]
    assert len({*names}) == 4


async def test_one_that_is_switched_off_is_not_there() -> None:
    async with world(dialects=dialects_of(("*",))) as api:
        answers: list[httpx.Response] = [await api.client.get(path) for path in ("/console", ASSETS[0])]
    assert [answer.status_code for answer in answers] == [404, 404]


def test_the_pages_of_a_feature_are_there_with_it() -> None:
    files = read_folder(STATIC)
    assert _without(files, feature.features()) == files
    left = _without(files, {"archive", "batches", "statistics", "webhooks"})
    assert files.keys() - left.keys() == {"pages/schedule.js", "pages/schedules.js"}
    lines = files["pages.js"].decode().splitlines()
    assert left["pages.js"].decode().splitlines() == [line for line in lines if "schedule" not in line]
    assert not any(path.startswith("/console/schedules") for path in _pages(left))
    # Of one that is off, as of one that is not there.
    assert any(path.startswith("/console/archive") for path in _pages(files))
    assert not any(path.startswith("/console/archive") for path in CONSOLE.pages)


def test_no_module_leads_to_itself() -> None:
    named = re.compile(r"""(?:\bfrom|\bimport) *\(? *["'](\.[^"']*)["']""")
    uses = {
        path: {(path.parent / each).resolve() for each in named.findall(path.read_text())}
        for path in STATIC.resolve().rglob("*")
        if path.suffix in {".js", ".mjs"}
    }
    assert uses[STATIC.resolve() / "pages.js"] >= {*(STATIC.resolve() / "pages").glob("*.js")}
    # Raises CycleError, with the modules of a circle.
    assert {*TopologicalSorter(uses).static_order()} == uses.keys()
