"""What `help()` and editors show for a client's method: the flow's signature with the result it has here."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

M = TypeVar("M", bound=Callable[..., Any])


def shaped(method: M, flow: Callable[..., Any], result: str) -> M:
    """``method`` with ``flow``'s name, docstring and signature; ``result`` is the shape of what it gives."""
    signature = inspect.signature(flow)
    inner = str(signature.return_annotation).partition("[")[2].removesuffix("]")
    shown = signature.replace(return_annotation=result.format(inner))
    functools.update_wrapper(method, flow)
    method.__signature__ = shown  # type: ignore[attr-defined]
    method.__annotations__ = {**method.__annotations__, "return": shown.return_annotation}
    return method
