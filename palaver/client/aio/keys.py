"""Keys of the API, and tokens for pages: make, list, replace and revoke them."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.client.aio.transport import ApiTransport
from palaver.client.answers import keys_of, made_key_of, token_of
from palaver.client.errors import NotFound
from palaver.client.requests import tenants
from palaver.schemas.api_keys import KeyInfo, MadeKey
from palaver.schemas.tokens import Token, TokenScope
from palaver.vocabulary.scopes import Scope


class AsyncKeys:
    """The methods of the client about keys, which need a key with the scope ``admin``, and about tokens."""

    _transport: ApiTransport

    async def create_key(
        self,
        name: str,
        scopes: Sequence[Scope] = (),
        *,
        agents: Sequence[str] | None = None,
        conversation: str | None = None,
        expires_in: int | None = None,
        tenant: str | None = None,
        operator: bool = False,
    ) -> MadeKey:
        """Make a key, with no more rights than your own. Its ``key`` is shown this once.

        ``expires_in`` is in seconds. It may be held to ``agents`` of the server, or to one ``conversation``. ``tenant``
        and ``operator`` are for operators.

        Raises:
            Unauthorized: you have not all that it is to have.
            Conflict: there are too many (``keys_full``).
            Unprocessable: it cannot be like that.
            APIError, ConnectionFailed: it was not made, or its secret is unknown.
        """
        body = {
            "name": name,
            "scopes": list(scopes),
            "agents": None if agents is None else list(agents),
            "conversation": conversation,
            "expires_in": expires_in,
            "tenant": tenant,
            "operator": operator or None,
        }
        return made_key_of(await self._transport.call(tenants.create_key(body)))

    async def keys(self, tenant: str | None = None) -> tuple[KeyInfo, ...]:
        """The keys of your tenant, the newest first; of another ``tenant`` only for operators.

        Raises:
            APIError, ConnectionFailed: it cannot be asked.
        """
        return keys_of(await self._transport.call(tenants.list_keys(tenant)))

    async def rotate_key(self, key_id: str, overlap: int | None = None) -> MadeKey:
        """Make a key with the rights of another one, which stays valid for ``overlap`` seconds, else for a day.

        Raises:
            NotFound: there is no such key.
            Unauthorized: it has rights that yours has not.
            APIError, ConnectionFailed: it was not made, or its secret is unknown.
        """
        return made_key_of(await self._transport.call(tenants.rotate_key(key_id, overlap)))

    async def create_token(
        self,
        *,
        conversation: str | None = None,
        run: str | None = None,
        scopes: Sequence[TokenScope] = ("runs:read",),
        expires_in: int = 300,
        subject: str | None = None,
    ) -> Token:
        """Make a token for a page: for one conversation, or that of a run, with no more rights than your key, for
        ``expires_in`` seconds. What is done with it is done by your key; with a ``subject`` by that person, as
        ``key/subject``.

        Raises:
            NotFound: there is no such run or conversation.
            Unauthorized: you have not all that it is to have.
            APIError, ConnectionFailed: it was not made; ``no_secret_key``, the server signs none.
        """
        body = {"conversation": conversation, "run": run, "scopes": list(scopes), "expires_in": expires_in}
        if subject is not None:
            body["subject"] = subject
        return token_of(await self._transport.call(tenants.create_token(body)))

    async def revoke_key(self, key_id: str) -> None:
        """Forget a key: within a second it opens nothing any more.

        Raises:
            NotFound: there is no such key.
            APIError, ConnectionFailed: it may be valid still.
        """
        try:
            await self._transport.call(tenants.revoke_key(key_id))
        except NotFound as error:
            # A key that is not there after a lost answer was revoked by that request.
            if not error.perhaps_done:
                raise
