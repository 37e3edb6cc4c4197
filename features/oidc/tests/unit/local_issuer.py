"""An issuer of OpenID Connect on loopback, in the process of a test: real sockets, real keys, real signatures."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from palaver.config.settings import Settings
from tests.unit.api_world import SETTINGS

METADATA: Final = "/realm/.well-known/openid-configuration"
KEYS: Final = "/realm/keys"
AUDIENCE: Final = "https://palaver.example.com"
KINDS: Final = {"RS256": "RSA", "PS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}


@cache
def private_key(name: str, kind: str, bits: int) -> Any:
    """A key to sign with: the same for the same name."""
    match kind:
        case "RSA":
            return rsa.generate_private_key(65537, bits)
        case "EC":
            return ec.generate_private_key(ec.SECP256R1())
        case "P-384":
            return ec.generate_private_key(ec.SECP384R1())
        case _:
            return ed25519.Ed25519PrivateKey.generate()


def published(name: str, kind: str = "RSA", bits: int = 2048, **fields: Any) -> dict[str, Any]:
    """The public half of a key, as an issuer publishes it."""
    public = private_key(name, kind, bits).public_key()
    algorithm = {"RSA": "RS256", "EC": "ES256", "P-384": "ES384", "OKP": "EdDSA"}[kind]
    shown: dict[str, Any] = jwt.get_algorithm_by_name(algorithm).to_jwk(public, as_dict=True)
    shown.pop("key_ops", None)
    return {**shown, "kid": name, "use": "sig", **fields}


class LocalIssuer:
    """The issuer. Its answers can be changed by their paths."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: Counter[str] = Counter()
        """How often each path was asked for."""
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        """Answers in the place of the usual ones."""
        self.keys: Sequence[dict[str, Any]] = [published("first")]
        self.slow: asyncio.Event | None = None
        """If it is there, answers wait for it."""
        self.away = False
        """True if it ends connections without an answer."""
        self.server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        assert self.server is not None
        port: int = self.server.sockets[0].getsockname()[1]
        return port

    def settings(self, **changes: Any) -> Settings:
        """Settings of an API that takes its tokens."""
        return SETTINGS.model_copy(update={"oidc_issuer": self.url, "oidc_audience": AUDIENCE, **changes})

    def claims(self, **changes: Any) -> dict[str, Any]:
        """The claims of a token; those that are None are left out."""
        now = int(time.time())
        usual = {
            "iss": self.url, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 600, "scope": "runs:read",
        }  # fmt: skip
        return {name: value for name, value in {**usual, **changes}.items() if value is not None}

    def token(
        self, key: str = "first", algorithm: str = "RS256", headers: dict[str, Any] | None = None, **claims: Any
    ) -> str:
        """A token with these claims."""
        signs = private_key(key, KINDS[algorithm], 2048)
        said = {"kid": key, "typ": "at+jwt", **(headers or {})}
        return jwt.encode(
            self.claims(**claims), signs, algorithm, {name: value for name, value in said.items() if value is not None}
        )

    def bearer(self, **claims: Any) -> dict[str, str]:
        """The header of such a token."""
        return {"Authorization": f"Bearer {self.token(**claims)}"}

    def answer(self, path: str, body: object, status: int = 200, **headers: str) -> None:
        """From now on, answer ``path`` like this."""
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.answers[path] = status, headers, text

    async def stop(self) -> None:
        """Serve no more."""
        if self.server is not None:
            self.server.close()
            await self.server.wait_closed()

    async def start(self) -> None:
        """Serve at a port of its own."""
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.port}/realm"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.away:
                return
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split(" ")[1]
            self.asked[path] += 1
            if self.slow is not None:
                await self.slow.wait()
            status, headers, body = self.answers.get(path) or self._usual(path)
            lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", "connection: close"]
            lines += (f"{name}: {value}" for name, value in headers.items())
            writer.write("\r\n".join([*lines, "", ""]).encode() + body)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def _usual(self, path: str) -> tuple[int, dict[str, str], bytes]:
        if path == METADATA:
            document: object = {"issuer": self.url, "jwks_uri": f"http://127.0.0.1:{self.port}{KEYS}"}
        elif path == KEYS:
            document = {"keys": self.keys}
        else:
            return 404, {}, b"{}"
        return 200, {"content-type": "application/json"}, json.dumps(document).encode()


@asynccontextmanager
async def local_issuer() -> AsyncIterator[LocalIssuer]:
    """An issuer that serves until the end."""
    issuer = LocalIssuer()
    await issuer.start()
    try:
        yield issuer
    finally:
        if issuer.slow is not None:
            issuer.slow.set()
        await issuer.stop()
