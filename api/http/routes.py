"""The route of a handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class HandlerRoute(Route):
    """A handler of a dialect, at a path and for a method. ``describe`` returns the operation in the OpenAPI document,
    which is made when that is asked for."""

    def __init__(
        self,
        method: str,
        path: str,
        endpoint: Callable[[Request], Awaitable[Response]],
        *,
        name: str,
        operation_id: str,
        describe: Callable[[], dict[str, Any]],
    ) -> None:
        super().__init__(path, endpoint, name=name)
        self.method: Final = method
        # The framework adds HEAD to GET.
        self.methods = {method}
        self.operation_id: Final = operation_id
        self.describe: Final = describe
