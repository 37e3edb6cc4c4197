"""The language of model names: `tool-3+429-2-1@2+rate-50` read into a `ModelScript`.

The table of directives is in the docstring of the package.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from palaver.late import dataclass

from .signed import PROVIDERS

STATUS = re.compile(r"[45]\d\d")
ALWAYS = "*"

ANSWERS = ("echo", "say-N", "tool-N", "parallel-N[-M]", "steps-A-B-…", "use-NAME", "use-each", "json[-N]", "as-NAME")
PACE = ("tokens-N", "ttft-MS", "rate-R", "chunk-K", "args-split[-K]", "reasoning[-N]", "window-N", "stale-N", "room-N")
FAULTS: dict[str, tuple[str, ...]] = {
    "429date": ("N", "S"),
    "429ms": ("N", "MS"),
    "quota": ("N",),
    "budget": ("N",),
    "context": ("N",),
    "policy": ("N",),
    "filter": ("N",),
    "hang": ("N",),
    "reset": ("N",),
    "stall": ("N", "K"),
    "cut": ("N", "K"),
    "short": ("N", "K"),
    "errorchunk": ("N", "K"),
    "overloaded": ("N", "K"),
    "badjson": ("N",),
    "html": ("N",),
    "empty": ("N",),
    "badargs": ("N",),
    "unknowntool": ("N",),
    "pause": ("N", "K"),
    "raw": ("N",),
    "huge": ("BYTES",),
}
"""Every fault but the plain statuses, with the names of its arguments."""

BY_CALL = frozenset({"badargs", "unknowntool", "pause"})
"""Faults whose N counts model calls of the turn: what they spoil is answered, not retried."""

DEFAULT_K = 3
"""Stream events sent before a stall or a cut when K is not given: the role and two tokens."""


class UnknownModel(ValueError):
    """The model name is not made of known directives."""


@dataclass(frozen=True, slots=True)
class ScriptedFault:
    """One way to fail. `tries` None means always; `call` None means at any model call of the turn."""

    name: str
    tries: int | None = None
    call: int | None = None
    retry_after: str | None = None
    after_events: int = DEFAULT_K
    size: int = 0


@dataclass(frozen=True, slots=True)
class ModelScript:
    """The answer that a model name asks for. `ttft` is seconds, `rate` tokens a second."""

    plan: tuple[int, ...] = ()
    echo: bool = False
    words: int | None = None
    say: int | None = None
    use: str | None = None
    use_each: bool = False
    json: int | None = None
    ttft: float = 0.0
    rate: float | None = None
    chunk: int = 1
    args_split: int | None = None
    reasoning: int = 0
    window: int | None = None
    stale: int | None = None
    room: int | None = None
    provider: str | None = None
    faults: tuple[ScriptedFault, ...] = ()

    def fault(self, call_index: int, attempt: int) -> ScriptedFault | None:
        """The fault this try meets. Those of one call follow each other: `429-1+500-2` is 429, 500, 500."""
        spent = 0
        for fault in self.faults:
            if fault.call not in (None, call_index):
                continue
            if fault.tries is None:
                return fault
            if fault.name in BY_CALL:
                if fault.call is not None or call_index <= fault.tries:
                    return fault
                continue
            spent += fault.tries
            if attempt <= spent:
                return fault
        return None


@lru_cache(maxsize=4096)
def parse(model: str) -> ModelScript:
    """Read a model name. Raises UnknownModel, whose message names the offending part and every directive."""
    fields: dict[str, Any] = {}
    plan: list[int] = []
    faults: list[ScriptedFault] = []
    for part in model.split("+"):
        body, at, call = part.partition("@")
        name, *args = body.split("-")
        try:
            if name in FAULTS or STATUS.fullmatch(name):
                faults.append(_fault(name, args, _whole(call) if at else None))
                continue
            if at:
                raise UnknownModel("only faults take @k")
            turns, more = _shape(name, args)
        except ValueError as error:
            raise UnknownModel(_complaint(model, part, str(error))) from None
        plan.extend(turns)
        fields.update(more)
    return ModelScript(plan=tuple(plan), faults=tuple(faults), **fields)


def known() -> str:
    """Every directive, as one line."""
    faults = ["STATUS[-N[-S]]"]
    for name, arguments in FAULTS.items():
        faults.append(f"{name}-BYTES" if name == "huge" else name + _optional(arguments))
    return ", ".join([*ANSWERS, *PACE, *PROVIDERS, *faults])


def _optional(arguments: tuple[str, ...]) -> str:
    return f"[-{arguments[0]}{_optional(arguments[1:])}]" if arguments else ""


def _complaint(model: str, part: str, reason: str) -> str:
    return (
        f"The model `{model}` does not exist: `{part}`: {reason}. "
        f"A model name joins directives with +, faults take @k; known directives: {known()}"
    )


def _shape(name: str, args: list[str]) -> tuple[list[int], dict[str, Any]]:
    """An answer or pace directive: the model calls it adds to the turn, and the fields it sets."""
    match name, args:
        case "echo", []:
            return [], {"echo": True}
        case "say", [n]:
            return [], {"say": _whole(n)}
        case "tool", [n]:
            return [1] * _whole(n), {}
        case "parallel", [n]:
            return [_whole(n, least=1)], {}
        case "parallel", [n, m]:
            return [_whole(n, least=1)] * _whole(m), {}
        case "steps", [_, *_]:
            return [_whole(n, least=1) for n in args], {}
        case "json", []:
            return [], {"json": 0}
        case "json", [n]:
            return [], {"json": _whole(n)}
        case "use", ["each"]:
            return [], {"use_each": True}
        case "use", [_, *_]:
            return [], {"use": "-".join(args)}
        case "tokens", [n]:
            return [], {"words": _whole(n)}
        case "ttft", [ms]:
            return [], {"ttft": _number(ms) / 1000}
        case "rate", [r] if _number(r) > 0:
            return [], {"rate": _number(r)}
        case "chunk", [k]:
            return [], {"chunk": _whole(k, least=1)}
        case "args", ["split"]:
            return [], {"args_split": 5}
        case "args", ["split", k]:
            return [], {"args_split": _whole(k, least=1)}
        case "reasoning", []:
            return [], {"reasoning": 8}
        case "reasoning", [n]:
            return [], {"reasoning": _whole(n)}
        case "window", [n]:
            return [], {"window": _whole(n)}
        case "stale", [n]:
            return [], {"stale": _whole(n, least=2)}
        case "room", [n]:
            return [], {"room": _whole(n)}
        case "as", [_, *_]:
            return [], {}
        case provider, [] if provider in PROVIDERS:
            return [], {"provider": provider}
    raise UnknownModel("no such directive")


def _fault(name: str, args: list[str], call: int | None) -> ScriptedFault:
    if name == "huge":
        if len(args) != 1:
            raise UnknownModel("huge takes BYTES")
        return ScriptedFault(name, call=call, size=_whole(args[0]))
    takes = FAULTS.get(name, ("N", "S"))
    if len(args) > len(takes):
        raise UnknownModel(f"{name} takes at most {'-'.join(takes)}")
    tries = _whole(args[0]) if args and args[0] != ALWAYS else None
    second = args[1] if len(args) > 1 else None
    if "S" in takes or "MS" in takes:
        if second is not None:
            _number(second)
        return ScriptedFault(name, tries, call, retry_after=second)
    return ScriptedFault(name, tries, call, after_events=DEFAULT_K if second is None else _whole(second))


def _whole(text: str, least: int = 0) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise UnknownModel(f"`{text}` is not a whole number of at least {least}")
    return int(text)


def _number(text: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", text):
        raise UnknownModel(f"`{text}` is not a number")
    return float(text)
