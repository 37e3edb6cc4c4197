"""The keys of an issuer: fetched once for all, behind a guard, bounded, and remembered for a while."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from features.oidc import documents, issuer
from features.oidc.documents import Documents, Unfetched
from features.oidc.issuer import Issuer
from features.oidc.issuer_check import look_at_issuer
from features.oidc.key_set import KeySet
from features.oidc.tests.unit.local_issuer import KEYS, METADATA, LocalIssuer, local_issuer, private_key, published
from palaver.vocabulary.limits import limit_of
from tests.waiting import aeventually


@pytest.fixture
async def known(there: LocalIssuer) -> AsyncIterator[Issuer]:
    made = Issuer.of(there.settings())
    try:
        yield made
    finally:
        await made.close()


async def test_many_tokens_at_once_are_one_fetch(there: LocalIssuer, known: Issuer) -> None:
    found = await asyncio.gather(*(known.claims(there.token(sub=f"user-{number}")) for number in range(50)))
    assert [claims and claims["sub"] for claims in found] == [f"user-{number}" for number in range(50)]
    assert there.asked == {METADATA: 1, KEYS: 1}


async def test_nothing_is_asked_before_there_is_a_token_that_could_be_good(there: LocalIssuer, known: Issuer) -> None:
    for junk in ("", "eyJ", "a.b.c", there.token(headers={"kid": None}), "eyJ" + "x" * limit_of("foreign_token")):
        assert await known.claims(junk) is None
    assert not there.asked


async def test_a_flood_of_unknown_keys_is_one_fetch(
    there: LocalIssuer, known: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer, "COOL_DOWN", 0.0)
    assert await known.claims(there.token())
    monkeypatch.setattr(issuer, "COOL_DOWN", 30.0)
    flood = [there.token(headers={"kid": f"key-{number}"}) for number in range(60)]
    assert {await known.claims(token) for token in flood[:20]} == {None}
    assert {*await asyncio.gather(*map(known.claims, flood[20:]))} == {None}
    assert there.asked[KEYS] == 2
    assert await known.claims(there.token())


async def test_keys_change_and_both_are_alive(
    there: LocalIssuer, known: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer, "COOL_DOWN", 0.0)
    old, new = there.token("first"), there.token("second", "ES256")
    assert await known.claims(old)
    there.keys = [published("first"), published("second", "EC")]
    assert await known.claims(new)
    assert await known.claims(old)
    there.keys = [published("second", "EC")]
    monkeypatch.setattr(issuer, "FRESH", 0.0)
    assert await known.claims(new)

    async def gone() -> bool:
        return await known.claims(old) is None

    await aeventually(gone)
    assert await known.claims(new)


async def test_after_a_long_silence_the_issuer_is_heard_first(
    there: LocalIssuer, known: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that it took back meanwhile is not used once more."""
    monkeypatch.setattr(issuer, "COOL_DOWN", 0.0)
    assert await known.claims(there.token("first"))
    there.keys = [published("second", "EC")]
    monkeypatch.setattr(issuer, "FRESH", 0.0)
    assert await known.claims(there.token("first")) is None


async def test_known_keys_serve_while_the_issuer_is_away_for_a_time(
    there: LocalIssuer, known: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer, "COOL_DOWN", 0.0)
    monkeypatch.setattr(issuer, "AGAIN", 0.0)
    assert await known.claims(there.token())
    there.away = True
    monkeypatch.setattr(issuer, "FRESH", 0.0)
    for _ in range(3):
        assert await known.claims(there.token())
    unknown = there.token("second", "ES256")
    with pytest.raises(Unfetched, match="cannot be asked"):
        await known.claims(unknown)
    monkeypatch.setattr(issuer, "SERVES", 0.0)
    with pytest.raises(Unfetched):
        await known.claims(there.token())
    monkeypatch.setattr(issuer, "SERVES", 3600.0)
    there.away = False
    there.keys = [published("second", "EC")]
    assert await known.claims(unknown)


async def test_a_slow_issuer_is_waited_for_in_the_background(
    there: LocalIssuer, known: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer, "_PATIENCE", 0.05)
    there.slow = asyncio.Event()
    with pytest.raises(Unfetched, match="has not answered yet"):
        await known.claims(there.token())
    there.slow.set()

    async def answered() -> bool:
        return await known.claims(there.token()) is not None

    await aeventually(answered)
    assert there.asked == {METADATA: 1, KEYS: 1}


async def test_an_issuer_that_never_answers_is_given_up(
    there: LocalIssuer, known: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer, "_DEADLINE", 0.3)
    there.slow = asyncio.Event()
    with pytest.raises(Unfetched, match=r"did not answer within 0\.3 seconds"):
        await known.claims(there.token())
    with pytest.raises(Unfetched):
        await known.claims(there.token())
    assert there.asked[METADATA] <= 1, "not again at once"


BIG = {"keys": [published("first")], "more": "x" * limit_of("issuer_document")}


@pytest.mark.parametrize(
    ("path", "status", "body", "said"),
    [
        (METADATA, 200, {"issuer": "https://other.example.com", "jwks_uri": "x"}, "that of another issuer"),
        (METADATA, 200, [], "no JSON object"),
        (METADATA, 500, {}, "answered HTTP 500"),
        (KEYS, 404, {}, "answered HTTP 404"),
        (KEYS, 200, b"{", "no JSON object"),
        (KEYS, 200, b"[" * 2_000, "no JSON object"),
        (KEYS, 200, gzip.compress(json.dumps(BIG).encode()), "no JSON object"),
        (KEYS, 200, BIG, "more than 131072 bytes"),
        (KEYS, 200, {}, "no list `keys`"),
        (KEYS, 200, {"keys": "all"}, "no list `keys`"),
        (KEYS, 200, {"keys": [1, {}, {"kty": ["RSA"]}, {"kty": "RSA", "kid": "first"}]}, "no key of use"),
        (KEYS, 200, {"keys": [published("first")] * 51}, "51 keys, of at most 50"),
    ],
)
async def test_what_is_no_answer_is_told(
    there: LocalIssuer, known: Issuer, path: str, status: int, body: Any, said: str
) -> None:
    there.answer(path, body, status, **({"content-encoding": "gzip"} if str(body).startswith("b'\\x1f") else {}))
    with pytest.raises(Unfetched, match=said):
        await known.claims(there.token())


@pytest.mark.parametrize("status", [301, 302, 307])
async def test_a_redirect_leads_nowhere(there: LocalIssuer, known: Issuer, status: int) -> None:
    async with local_issuer() as other:
        there.answer(KEYS, b"", status, location=f"http://127.0.0.1:{other.port}{KEYS}")
        with pytest.raises(Unfetched, match=f"answered HTTP {status}"):
            await known.claims(there.token())
        assert not other.asked


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data",
        "https://169.254.169.254/latest/meta-data",
        "https://metadata.internal:1/",
        "http://10.0.0.1/keys",
        "https://10.0.0.1/keys",
        "https://[::ffff:10.0.0.1]/keys",
        "https://0x0a000001/keys",
        "file:///etc/passwd",
        "https://user:password@login.example.com/keys",
        "https:///keys",
        "https://login.example.com/" + "x" * 2_000,
    ],
)
async def test_the_metadata_does_not_lead_into_a_private_network(there: LocalIssuer, url: str) -> None:
    looked: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        looked.append(host)
        return ["169.254.169.254"] if host == "metadata.internal" else [host]

    there.answer(METADATA, {"issuer": there.url, "jwks_uri": url})
    with pytest.raises(Unfetched, match=r"is not asked|is no https:// address|has a login|has no host|no jwks_uri"):
        await Issuer.of(there.settings(oidc_jwks_url=None), resolve).fetch()


async def test_the_address_of_the_keys_may_be_set(there: LocalIssuer) -> None:
    settings = there.settings(
        oidc_issuer="https://login.example.com", oidc_jwks_url=f"http://127.0.0.1:{there.port}{KEYS}"
    )
    assert [key.id for key in (await Issuer.of(settings).fetch()).keys] == ["first"]
    assert there.asked == {KEYS: 1}
    with pytest.raises(Unfetched, match="is no https:// address"):
        await Documents(["login.example.com"]).read(f"http://127.0.0.1:{there.port}{KEYS}")
    assert there.asked == {KEYS: 1}


@pytest.mark.parametrize(
    ("listed", "addresses", "asked"),
    [
        ((), ["127.0.0.1"], False),
        ((), ["10.1.2.3", "fd12::1"], False),
        ((), ["::ffff:127.0.0.1"], False),
        ((), ["64:ff9b::7f00:1"], False),
        ((), ["100.100.100.200"], False),
        (("login.example.com",), ["169.254.169.254"], False),
        (("login.example.com",), ["fd00:ec2::254"], False),
        (("login.example.com",), ["224.0.0.1", "0.0.0.0"], False),
        (("other.example.com",), ["127.0.0.1"], False),
        (("login.example.com",), ["127.0.0.1"], True),
    ],
)
async def test_what_a_name_leads_to_is_judged(
    there: LocalIssuer, listed: Sequence[str], addresses: Sequence[str], asked: bool
) -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return addresses

    came = asyncio.Event()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        writer.close()

    async with await asyncio.start_server(meet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unfetched, match="cannot be asked" if asked else "is not asked"):
            await Documents(listed, resolve).read(f"https://login.example.com:{port}/keys")
    assert came.is_set() is asked


def certified(folder: Path, name: str) -> ssl.SSLContext:
    """What a server of that name shows."""
    key = private_key(name, "EC", 2048)
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(who)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return context


@pytest.mark.parametrize("name", ["login.example.com", "other.example.com"])
async def test_the_certificate_has_to_be_that_of_the_name(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address is connected to, and the name is what must be proved."""
    context = certified(tmp_path, name)
    monkeypatch.setattr(
        documents, "_authorities", lambda: ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))
    )
    heads: list[bytes] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        # The first refuses connections: the next one is tried.
        return ["127.0.0.2", "127.0.0.1"]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        asking = Documents(["login.example.com"], resolve).read(f"https://login.example.com:{port}/keys")
        if name == "login.example.com":
            assert await asking == {}
            assert f"\r\nhost: login.example.com:{port}\r\n".encode() in heads[0].lower()
        else:
            with pytest.raises(Unfetched, match=r"cannot be asked: ConnectError: .*certificate"):
                await asking
            assert not heads


@pytest.mark.slow
def test_keys_that_others_could_sign_with_are_left_out() -> None:
    good = [published("rsa"), published("ec", "EC"), published("okp", "OKP"), published("bound", alg="PS256")]
    weak = [
        published("short", "RSA", 1024),
        published("curve", "P-384"),
        {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "shared", "alg": "HS256"},
        published("sealing", use="enc"),
        published("asks for hs", alg="HS256"),
        published("asks for none", alg="none"),
        published("private", d="AQAB"),
        published("blank id", kid="a b"),
        published("no id", kid=None),
        published("number", kid=7),
        published("point", "EC", x="AAAA"),
        published("texts", n=5),
    ]
    keys = KeySet.of({"keys": [*weak, *good]}).keys
    assert {key.id: key.algorithms for key in keys} == {
        "rsa": ("RS256", "PS256"), "ec": ("ES256",), "okp": ("EdDSA",), "bound": ("PS256",),
    }  # fmt: skip
    with pytest.raises(Unfetched, match="no key of use"):
        KeySet.of({"keys": weak})


@pytest.mark.slow
async def test_two_keys_may_have_one_id(there: LocalIssuer, known: Issuer) -> None:
    there.keys = [published("first", "EC", kid="same"), published("second", kid="same"), published("third", kid="same")]
    for key, algorithm in (("first", "ES256"), ("second", "RS256"), ("third", "PS256")):
        assert await known.claims(there.token(key, algorithm, {"kid": "same"}))
    assert await known.claims(there.token("fourth", "RS256", {"kid": "same"})) is None


async def test_the_command_says_what_it_finds(there: LocalIssuer) -> None:
    there.keys = [published("first"), published("second", "EC"), published("third", "EC")]
    found = await asyncio.to_thread(look_at_issuer, there.settings())
    assert (found.place, found.check, found.level) == ("issuer", "keys", "ok")
    assert found.found == f"3 of {there.url}: ES256, RS256 or PS256"
    there.answer(KEYS, {"keys": []})
    wrong = await asyncio.to_thread(look_at_issuer, there.settings())
    assert (wrong.level, wrong.found.partition(":")[0]) == ("error", "the issuer has no key of use")
