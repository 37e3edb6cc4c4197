"""Acts with keys of the store: who did what, kept for the tenant, and read."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from palaver.errors import FieldError, Refused
from palaver.operations.backend import Backend, Caller, within_deadline
from palaver.operations.keys import tenant_of
from palaver.operations.live_keys import key_ended, key_of_request
from palaver.schemas.audit import AuditPage

_log: Final = logging.getLogger("palaver.api")
_PLACE: Final = re.compile(r"[0-9]{1,16}-[0-9]{1,16}")


def is_kept() -> bool:
    """Tell whether acts of the caller of this request are kept: where the store has the key."""
    return key_ended.get() is not None


async def keep_act(
    backend: Backend, caller: Caller, operation: str, request: str, client: str | None, status: int | None,
    facts: Mapping[str, Any],
) -> None:  # fmt: skip
    """Keep an act of a caller. It is done already, and in the log: if it cannot be kept, that is logged, too."""
    try:
        await within_deadline(
            backend.store.audit.add(
                caller.tenant,
                operation,
                key=caller.name,
                key_id=key_of_request.get(),
                operator=caller.operator,
                client=client,
                request=request,
                status=status,
                facts=facts,
            )
        )
    except Exception as error:
        _log.error("an act is in the log and not in the store: %s (request %s)", type(error).__name__, request)


async def read_audit(
    backend: Backend, caller: Caller, *, tenant: str | None, after: str, since: datetime | None, limit: int
) -> AuditPage:
    """Return acts of a tenant, the oldest first: the caller's own unless an operator names another one.

    Raises:
        Refused: there is no such tenant, for this caller; or ``invalid_cursor``.
    """
    if after and not _PLACE.fullmatch(after):
        raise Refused("invalid_cursor", faults=[FieldError("?after", "invalid_cursor", "is not the id of an act")])
    tag, _ = await tenant_of(backend, tenant, caller)
    acts = await within_deadline(backend.store.audit.read(tag, after=after, since=since, limit=limit + 1))
    shown = acts[:limit]
    return AuditPage(data=shown, next_after=shown[-1].id if shown else after, has_more=len(acts) > limit)
