"""Clients that speak HTTP badly, slowly, or not at all: a good one beside them is served all the while."""

from __future__ import annotations

import json
import random
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPResponse
from pathlib import Path
from typing import Final

import httpx
import pytest

from features.stack.ports import HOST
from tests.process.api_alone import ApiAlone, Beside, api_alone
from tests.process.cluster import Cluster
from tests.process.neighbour import neighbour_of, spread
from tests.unit.test_api_fuzz import SEEDS, TOKENS
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.process

FILES: Final = 256
ROOM: Final = FILES - 136
"""Connections that a process with so many files has."""
FLOOD: Final = 300
GROWTH: Final = 64 << 20
"""Bytes by which the process may have grown when all of it is over."""
POST = b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(200))


@pytest.fixture(scope="module")
def api() -> Iterator[ApiAlone]:
    with api_alone(FILES) as api:
        httpx.get(f"{api.url}/openapi.json", trust_env=False, timeout=PATIENCE).raise_for_status()
        before = api.memory
        yield api
        # Descriptors: those of the last clients are closed a moment after they went.
        eventually(lambda: api.descriptors < ROOM)
        assert api.memory < before + GROWTH
        before_it, _, trace = api.child.output.partition("Traceback (most recent call last):")
        assert not trace, before_it[-500:] + trace[:5000]


@pytest.fixture
def good(api: ApiAlone) -> Iterator[Beside]:
    """Refusals say when to come again, and there is nothing else but answers."""
    with Beside(api.url) as good:
        good.is_served(1)
        yield good
        good.is_served(1)
    assert set(good.answers) <= {"200", "503"}, good.answers


@contextmanager
def connected(api: ApiAlone) -> Iterator[socket.socket]:
    with socket.create_connection((HOST, api.port), timeout=20) as client:
        yield client


def said(client: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    heard = bytearray()
    with suppress(ConnectionError):
        while piece := client.recv(1 << 16):
            heard += piece
    return bytes(heard)


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        pytest.param(b"what is this\r\n\r\n", 400, b"malformed_request", id="no HTTP"),
        pytest.param(b"\x00" * 200 + b"\r\n\r\n", 400, b"malformed_request", id="zeros"),
        pytest.param(TLS_HELLO + b"\r\n\r\n", 400, b"malformed_request", id="TLS"),
        pytest.param(b"GET /healthz HTTP/1.1\r\n\r\n", 400, b"malformed_request", id="no Host"),
        pytest.param(GET + b"Host: b\r\n\r\n", 400, b"malformed_request", id="two Hosts"),
        pytest.param(b"GET /healthz HTTP/1.0\r\n\r\n", 400, b"invalid_host", id="HTTP/1.0 without Host"),
        pytest.param(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n", 200, b"ok", id="HTTP/1.0"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, b"malformed_request", id="HTTP/2"),
        pytest.param(GET + b"Connection: upgrade, close\r\nUpgrade: websocket\r\n\r\n", 200, b"ok", id="websocket"),
        pytest.param(GET + b"Connection: upgrade, close\r\nUpgrade: h2c\r\n\r\n", 200, b"ok", id="h2c"),
        pytest.param(b"CONNECT a:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, b"malformed_request", id="CONNECT"),
        pytest.param(b"CONNECT / HTTP/1.1\r\nHost: a\r\n\r\n", 400, b"malformed_request", id="CONNECT a path"),
        pytest.param(GET + b"a: b\x00c\r\n\r\n", 400, b"malformed_request", id="NUL in a header"),
        pytest.param(GET + b"a : b\r\n\r\n", 400, b"malformed_request", id="space behind a name"),
        pytest.param(GET + b"a:b\r\n" * 9_000 + b"\r\n", 431, b"headers_too_large", id="9,000 headers"),
        pytest.param(GET + b"a:b\r\n" * 30_000, 431, b"headers_too_large", id="30,000 headers"),
        pytest.param(GET + b"a: " + b"b" * (1 << 20), 431, b"headers_too_large", id="a header of 1 MiB"),
        pytest.param(GET + b"Cookie: " + b"b" * 20_000 + b"\r\nConnection: close\r\n\r\n", 200, b"ok", id="20 KB"),
        pytest.param(GET.replace(b"/", b"/" + b"a" * 20_000, 1) + b"\r\n", 414, b"uri_too_long", id="URL of 20 KB"),
        pytest.param(b"GET /" + b"a" * (1 << 20), 431, b"headers_too_large", id="URL 1 MiB"),
        pytest.param(POST + b"Content-Length: -1\r\n\r\n", 400, b"malformed_request", id="negative length"),
        pytest.param(POST + b"Content-Length: 9\r\nContent-Length: 8\r\n\r\n", 400, b"malformed_request", id="lengths"),
        pytest.param(POST + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n", 400, b"malformed_request", id="long length"),
        pytest.param(POST + b"Content-Length: 99999999\r\n\r\n", 413, b"payload_too_large", id="large length"),
        pytest.param(CHUNKED.replace(b"Tr", b"Content-Length: 5\r\nTr"), 400, b"malformed_request", id="both"),
        pytest.param(POST + b"Transfer-Encoding: gzip\r\n\r\n", 400, b"malformed_request", id="gzip"),
        pytest.param(CHUNKED.replace(b"chu", b"gzip, chu"), 400, b"malformed_request", id="gzip, chunked"),
        pytest.param(CHUNKED.replace(b"chu", b"identity, chu"), 400, b"malformed_request", id="identity, chunked"),
        pytest.param(CHUNKED.replace(b"Tr", b"Transfer-Encoding: a\r\nTr"), 400, b"malformed_request", id="twice"),
        pytest.param(CHUNKED.replace(b"/1.1", b"/1.0") + b"0\r\n\r\n", 400, b"malformed_request", id="chunks of 1.0"),
        pytest.param(CHUNKED.replace(b"chu", b"Chu") + b"2\r\n[]\r\n0\r\n\r\n", 422, b"validation", id="Chunked"),
        pytest.param(GET + b"Authorization: a\r\n" * 2 + b"\r\n", 400, b"Authorization more", id="two keys"),
        pytest.param(GET + b"X-Session-API-Key: a\r\n" * 2 + b"\r\n", 400, b"malformed_request", id="two keys of OH"),
        pytest.param(GET + b"Origin: a\r\n" * 2 + b"\r\n", 400, b"malformed_request", id="two origins"),
        pytest.param(GET + b"Accept: a/b\r\n" * 2 + b"\r\n", 200, b"ok", id="a list in two headers"),
        pytest.param(POST + b"Content-Type: a/b\r\n" * 2 + b"\r\n", 400, b"malformed_request", id="two types"),
        pytest.param(GET.replace(b" /", b"  /", 1) + b"\r\n", 400, b"malformed_request", id="blanks before the target"),
        pytest.param(GET.replace(b" H", b"  H", 1) + b"\r\n", 400, b"malformed_request", id="blanks behind it"),
        pytest.param(GET.replace(b" H", b"#a H", 1) + b"\r\n", 400, b"malformed_request", id="a fragment"),
        pytest.param(GET.replace(b" H", b"?a=b#c H", 1) + b"\r\n", 400, b"malformed_request", id="behind a query"),
        pytest.param(GET.replace(b" /", b" http://a/", 1) + b"\r\n", 400, b"malformed_request", id="another host"),
        pytest.param(GET.replace(b" /", b" http://localhost/", 1) + b"\r\n", 200, b"ok", id="the host itself"),
        pytest.param(CHUNKED + b"zz\r\n", 400, b"malformed_request", id="bad chunk"),
        pytest.param(CHUNKED + b"f" * 21 + b"\r\n", 400, b"malformed_request", id="huge chunk"),
        pytest.param(CHUNKED + b"2\r\n{}XX", 400, b"malformed_request", id="chunk without its end"),
        pytest.param(CHUNKED + b"2;" + b"a" * (1 << 18), 431, b"headers_too_large", id="endless chunk extension"),
        pytest.param(CHUNKED + b"0\r\na: " + b"b" * (1 << 18), 431, b"headers_too_large", id="an endless trailer"),
        pytest.param(CHUNKED + b"0\r\n" + b"a: b\r\n" * 50_000, 431, b"headers_too_large", id="endless trailers"),
        pytest.param(b"\r\n" * 200_000, 431, b"headers_too_large", id="empty lines"),
        pytest.param(b"GET /healthz HTTP/1.2\r\nHost: a\r\n\r\n", 400, b"malformed_request", id="another version"),
        pytest.param(GET + b"a: b\r\n c\r\n\r\n", 400, b"malformed_request", id="a folded header"),
        pytest.param(GET.replace(b"\r", b"") + b"\n", 400, b"malformed_request", id="bare line feeds"),
        pytest.param(CHUNKED.replace(b"chunked", b"chunked, identity"), 400, b"malformed_request", id="two codings"),
        pytest.param(CHUNKED + b"2;a=b\r\n[]\r\n0\r\n\r\n", 422, b"validation_error", id="chunk extension"),
        pytest.param(CHUNKED + b"1\r\n \r\n" * 10_000 + b"0\r\n\r\n", 400, b"malformed_json", id="10,000 chunks"),
    ],
)  # fmt: skip
def test_what_is_no_request_gets_a_problem(api: ApiAlone, good: Beside, sent: bytes, status: int, code: bytes) -> None:
    with connected(api) as client:
        with suppress(ConnectionError):
            client.sendall(sent)
        answer = HTTPResponse(client)
        answer.begin()
        body = answer.read()
        assert (answer.status, code in body) == (status, True), body
        if status >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.headers["x-request-id"] == json.loads(body)["request_id"]
    good.is_served(1)


def test_what_is_not_said_within_ten_seconds_is_not_waited_for(api: ApiAlone, good: Beside) -> None:
    """None of these is told to go on by what it says meanwhile: a byte now and then does not help."""
    whole = GET + b"\r\n"
    begun = {
        "silent": (b"", b"", b""),
        "half a head": (GET, b"", b"HTTP/1.1 408 "),
        "a byte now and then": (GET, b"a", b"HTTP/1.1 408 "),
        "half a second head": (whole + GET, b"", b"HTTP/1.1 408 "),
        "a second head, a byte now and then": (whole + GET, b"a", b"HTTP/1.1 408 "),
        "half a body": (POST + b"Content-Length: 100\r\n\r\n{", b"", b"HTTP/1.1 408 "),
        "a body, a byte now and then": (POST + b"Content-Length: 100\r\n\r\n{", b" ", b"HTTP/1.1 408 "),
        "a huge chunk": (CHUNKED + b"f" * 16 + b"\r\n", b"a", b"HTTP/1.1 408 "),
        "a body nobody wants": (POST.replace(b"/v1/runs", b"/nowhere") + b"Content-Length: 999\r\n\r\n", b"a", b""),
    }
    with ExitStack() as stack:
        clients = {name: stack.enter_context(connected(api)) for name in begun}
        heard = dict.fromkeys(begun, b"")
        for name, client in clients.items():
            client.sendall(begun[name][0])
            client.settimeout(0)
        open_ = set(begun)

        def all_are_closed() -> bool:
            for name in tuple(open_):
                try:
                    if begun[name][1]:
                        clients[name].send(begun[name][1])
                    piece = clients[name].recv(1 << 16)
                    heard[name] += piece
                    if piece:
                        continue
                except BlockingIOError:
                    continue
                except ConnectionError:
                    pass
                open_.discard(name)
            return not open_

        try:
            # Ten seconds for what is to come, and as many for the client to close, once it was answered.
            eventually(all_are_closed, every=0.5)
        except AssertionError:
            pytest.fail(f"still open: { {name: heard[name] for name in open_} }")
    for name, (_, _, answer) in begun.items():
        assert answer in heard[name], (name, heard[name])
    assert heard["silent"] == b""


@pytest.mark.parametrize("said_first", [b"", GET, GET + b"\r\n"], ids=["silent", "half a head", "idle"])
def test_more_connections_than_there_is_room_for(api: ApiAlone, good: Beside, said_first: bytes) -> None:
    """Those that do nothing give way, or are told that there is no room; the process keeps its other descriptors."""
    with ExitStack() as stack:
        for _ in range(FLOOD):
            client = stack.enter_context(connected(api))
            with suppress(ConnectionError):
                client.sendall(said_first)
        assert api.descriptors <= FILES - 32
        good.is_served(10)


def test_connections_beyond_the_room_hear_why(api: ApiAlone) -> None:
    """All that there is room for are busy: they watch nothing, but wait for their bodies."""
    with ExitStack() as stack:
        for _ in range(ROOM):
            client = stack.enter_context(connected(api))
            client.sendall(POST + b"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 100 ")
        with httpx.Client(base_url=api.url, trust_env=False, timeout=PATIENCE) as another:
            refused = another.get("/healthz")
        assert (refused.status_code, refused.json()["code"]) == (503, "too_many_connections")
        assert int(refused.headers["retry-after"]) > 0
        assert refused.headers["content-type"] == "application/problem+json"


def test_a_thousand_requests_at_once_on_one_connection(api: ApiAlone, good: Beside) -> None:
    with connected(api) as client:
        client.sendall((GET + b"\r\n") * 999 + GET + b"Connection: close\r\n\r\n")
        assert said(client).count(b"HTTP/1.1 200 OK") == 1000
    good.is_served()


def test_clients_that_never_read(api: ApiAlone, good: Beside) -> None:
    """Their answers stop being made when nobody takes them."""
    before = api.memory
    asked = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200
    with ExitStack() as stack:
        for _ in range(20):
            client = stack.enter_context(connected(api))
            client.settimeout(0)
            with suppress(BlockingIOError, ConnectionError):
                while client.send(asked):
                    pass
        good.is_served(20)
        assert api.memory < before + GROWTH


def test_connections_that_are_reset(api: ApiAlone, good: Beside) -> None:
    for sent in (b"", GET, GET + b"\r\n", POST + b"Content-Length: 100\r\n\r\n{", CHUNKED + b"5\r\n{") * 40:
        with connected(api) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(sent)
    good.is_served()


def test_clients_that_close_their_side_first(api: ApiAlone, good: Beside) -> None:
    for sent in (b"", GET, GET + b"\r\n", POST + b"Content-Length: 100\r\n\r\n{", CHUNKED + b"5\r\n{"):
        with connected(api) as client:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            assert said(client)[:13] in (b"", b"HTTP/1.1 200 ", b"HTTP/1.1 400 ")
    good.is_served()


def test_a_body_that_goes_wrong_after_its_answer(api: ApiAlone, good: Beside) -> None:
    """Nobody can be told any more."""
    with connected(api) as client:
        client.sendall(CHUNKED.replace(b"/v1/runs", b"/nowhere"))
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 404 ")
        with suppress(ConnectionError):
            client.sendall(b"zz\r\n")
        assert b"HTTP/1.1" not in said(client)
    good.is_served(1)


@pytest.mark.chaos
def test_a_hundred_thousand_broken_requests(api: ApiAlone, good: Beside) -> None:
    """Each is one of the seeds of the unit tests' fuzzing, with a few bytes changed, head and all."""
    for sent in broken(api.port, 100_000):
        if sent % 1000 < 20:
            good.is_served(1)


@pytest.mark.chaos
def test_the_neighbours_runs_take_as_long_as_without_hostile_clients_about(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster, ExitStack() as held:
        port = cluster.stack.ports.api
        with neighbour_of(cluster) as alone:
            eventually(lambda: len(alone) >= 400)
        for _ in range(200):
            held.enter_context(socket.create_connection((HOST, port), timeout=20)).sendall(GET)
        with neighbour_of(cluster) as beside:
            for _ in broken(port, 30_000):
                pass
    print(f"alone: {spread(alone)}; beside half heads and broken requests: {spread(beside)}")
    assert len(beside) >= 100


def broken(port: int, many: int) -> Iterator[int]:
    """Send so many broken requests, some on a connection; how many it were so far."""
    chance = random.Random(20260601)
    seeds = [POST + b"Content-Length: %d\r\n\r\n%b" % (len(body), body) for body in SEEDS]
    seeds += [GET + b"\r\n", CHUNKED + b"2\r\n{}\r\n0\r\n\r\n", POST + b"Content-Length: 2\r\n\r\n{}"]
    sent = 0
    while sent < many:
        with socket.create_connection((HOST, port), timeout=20) as client, suppress(ConnectionError):
            client.settimeout(0.2)
            for _ in range(chance.randrange(1, 20)):
                sent += 1
                client.sendall(mutated(chance, chance.choice(seeds), TOKENS))
            with suppress(TimeoutError):
                answer = client.recv(1 << 20)
                assert not answer.startswith(b"HTTP/1.1 5"), answer
        yield sent


def mutated(chance: random.Random, raw: bytes, tokens: list[bytes]) -> bytes:
    """`raw` with a few of its bytes cut out and others put in."""
    for _ in range(chance.randrange(0, 4)):
        at, cut = chance.randrange(len(raw) + 1), chance.randrange(12)
        put = chance.choice([*tokens, b"\r\n", b"\n", b" ", b":", chance.randbytes(4)])
        raw = raw[:at] + put + raw[at + cut :]
    return raw
