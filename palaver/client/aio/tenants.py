"""Tenants: their caps, their export and their erasure."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Final, Unpack

from palaver.client.aio.transport import ApiTransport
from palaver.client.answers import erasure_of, tenant_of, tenants_of
from palaver.client.errors import ClientError, NotFound
from palaver.client.options import CapOptions, check
from palaver.client.requests import tenants
from palaver.client.tasks import sleep
from palaver.client.tenant_export import ExportCursor
from palaver.schemas.erasures import Erasure
from palaver.schemas.tenants import TenantInfo

_PAUSE: Final = 0.5
"""Seconds between two questions about an erasure that waits for workers."""


class AsyncTenants:
    """The methods of the client about tenants, which need a key with the scope ``admin``."""

    _transport: ApiTransport

    async def tenants(self) -> tuple[TenantInfo, ...]:
        """The tenants by name, the default one first, each with its caps; without an operator's key your own.

        Raises:
            APIError, ConnectionFailed: it cannot be asked.
        """
        return tenants_of(await self._transport.call(tenants.list_tenants()))

    async def tenant(self, name: str) -> TenantInfo:
        """A tenant with its caps; ``default`` is the one that is always there.

        Raises:
            NotFound: there is none of that name, or it is not yours.
            APIError, ConnectionFailed: it cannot be asked.
        """
        return tenant_of(await self._transport.call(tenants.get_tenant(name)))

    async def set_caps(self, name: str, **caps: Unpack[CapOptions]) -> TenantInfo:
        """Change caps of a tenant, with an operator's key. They hold at once, for what waits, too; None takes one away,
        and what is left out stays.

        Raises:
            NotFound: there is none of that name.
            Unauthorized: the key is no operator's.
            APIError, ConnectionFailed: it was not changed; `Unprocessable` names the caps.
            TypeError: there is no such cap.
        """
        check(caps, CapOptions)
        return tenant_of(await self._transport.call(tenants.change_tenant(name, caps)))

    async def export_tenant(self, name: str, cursor: str | None = None) -> AsyncGenerator[dict[str, Any], None]:
        """Everything that a tenant has, a line each, as they come; behind the line with ``cursor``, if you have one.

        The last line is of the kind ``end`` and counts the others. A connection that breaks off is made anew.

        Raises:
            NotFound: there is none of that name, or it is not yours.
            APIError, ConnectionFailed: the rest cannot be had; the ``cursor`` of the last line is where to go on.
        """
        export = ExportCursor(self._transport.url, name, cursor)
        while not export.finished:
            error: ClientError | None = None
            try:
                async with self._transport.open(export.request, self._transport.timeout) as (head, chunks):
                    export.connected(head)
                    async for chunk in chunks:
                        for entry in export.read(chunk):
                            yield entry
            except ClientError as failed:
                error = failed
            if not export.finished:
                await sleep(export.pause(error))

    async def erase_tenant(self, name: str) -> Erasure:
        """Erase a tenant with all that it has, and return the receipt. That takes as long as it takes; what breaks off
        goes on when it is called again.

        Raises:
            NotFound: there is none of that name.
            Unauthorized: the key is no operator's.
            Conflict: the default tenant cannot be erased.
            APIError, ConnectionFailed: it is not done.
        """
        try:
            tag = (await self.tenant(name)).tag
        except NotFound:
            # One whose erasure has begun may be known by that alone.
            tag = None
        while True:
            erasure = erasure_of(await self._transport.call(tenants.erase_tenant(name, tag)))
            if erasure.done:
                return erasure
            tag = erasure.tag
            if erasure.unfinished_runs:
                await sleep(_PAUSE)
