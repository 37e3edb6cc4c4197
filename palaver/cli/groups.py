"""Options that several commands take together: a group is a dataclass, and a command takes it as one argument."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints


def ungrouped(command: Callable[..., None]) -> Callable[..., None]:
    """``command`` as Typer takes it: in the place of each argument that is a group, the options of the group."""
    groups: dict[str, type] = {}
    parameters: list[inspect.Parameter] = []
    kinds = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        kind = kinds[name]
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            groups[name] = kind
            options = get_type_hints(kind, include_extras=True)
            fields = dataclasses.fields(kind)
            parameters += [_option(each.name, options[each.name], each.default) for each in fields]
        else:
            parameters.append(_option(name, kind, parameter.default))

    @functools.wraps(command)
    def call(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in dataclasses.fields(group)})
        command(**given)

    del call.__dict__["__wrapped__"]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _option(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)
