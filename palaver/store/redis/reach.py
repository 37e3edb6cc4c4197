"""The tenant scope of a caller: the tenant that it asks for, or all of them.

Names of keys are made of ids in ``palaver.store.redis.keys`` and the modules beside it, and nowhere else. There an
id beyond the reach is read as the same id of a tenant that does not exist: the store looks once more for something that
is not there, so that a foreign id is answered as one that was never given, with the same commands of Redis. Code that
serves requests sets the reach of each; workers, sweepers and commands reach everything.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Final, NamedTuple

from palaver.processes.context import Holding
from palaver.vocabulary.ids import of_tenant, tenant_of

NOBODY: Final = "000000"
"""The tag of no tenant."""


class Reach(NamedTuple):
    """The tenant, or all, whose things can be read and changed."""

    tenant: str
    """The tag of the tenant that is asked for, empty for the default one: what is made is that tenant's."""
    all_tenants: bool = False
    """True if what is of others can be read and changed, too."""


NOTHING: Final = Reach(NOBODY)
"""The reach of callers that are not known yet."""
EVERYTHING: Final = Reach("", all_tenants=True)
"""The reach of a process of ours, without a caller."""
_reach: Final[ContextVar[Reach]] = ContextVar("palaver-reach", default=EVERYTHING)


def reach() -> Reach:
    """Return the reach of the present context."""
    return _reach.get()


def within(new: Reach) -> AbstractContextManager[None]:
    """Set the reach for a block."""
    return Holding(_reach, new)


def reaches(tag: str) -> bool:
    """Tell whether the tenant with this tag is within reach."""
    tenant, all_tenants = _reach.get()
    return all_tenants or tag == tenant


def is_reached(any_id: str) -> bool:
    """Tell whether the run or the conversation of this id is within reach, if there is one."""
    return reaches(tenant_of(any_id))


def reached(any_id: str) -> str:
    """Return the id as it is looked for: as it is, or as that of no tenant if it is beyond the reach.

    Raises:
        ValueError: it is beyond the reach, and no id.
    """
    return any_id if is_reached(any_id) else of_tenant(any_id, NOBODY)
