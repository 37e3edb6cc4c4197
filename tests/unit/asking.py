"""Ways to ask for a payment: those of the core, and of features (``ways.py`` among their tests)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tests.unit.test_api_second_person import AGENT, Office
from tests.waiting import aeventually

Way = Callable[[Office], Awaitable[dict[str, Any]]]
"""Ann has a part in a run by this route alone, and Bob by others: the run, whose model is about to ask for it."""
SECRETS: Final = {"secrets": {"ACCOUNT": "that of ann"}}
YES: Final = "Yes, approved. Go on, run it, continue."


class Ways(dict[str, Way]):
    """Ways by their routes."""

    def by(self, route: str) -> Callable[[Way], Way]:
        """Return a decorator for the way by a route."""

        def keep(of: Way) -> Way:
            assert route not in self
            self[route] = of
            return of

        return keep


async def streamed(desk: Office, path: str, body: Any, **headers: str) -> dict[str, Any]:
    """The run that a request of Ann's makes whose answer is a stream."""
    asking = asyncio.create_task(desk.ask("ann", "POST", path, body, **headers))
    desk.asking.append(asking)

    async def there() -> bool:
        assert not asking.done(), asking.result().text
        return bool(await desk.runs())

    await aeventually(there)
    return (await desk.runs())[0]


async def teller(desk: Office) -> None:
    """Let there be an agent of this name."""
    await desk.have("bob", "PUT", "/v1/agents/teller", AGENT)
