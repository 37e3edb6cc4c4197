"""What follows from code in pages: ``python -m docs.generate events`` (or another name of ``TABLES``).

Tests compare each with its page.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import getsource, isclass
from itertools import pairwise
from textwrap import dedent
from types import NoneType
from typing import Final, Literal, get_args, get_origin

from pydantic import BaseModel

from api.app import create_app
from api.native import NATIVE
from docs import one_step
from docs.wrap import wrapped
from palaver.config.policy import PolicyRule
from palaver.config.presets import PRESETS
from palaver.errors import FACTS, ErrorClass, Failure
from palaver.events.classes import EVENTS, BaseEvent
from palaver.events.kinds import EventKind, StoredIn
from palaver.steps.retry import MODEL_CALL, TOOL_CALL, stop_reason
from palaver.steps.tool_retry import SERVICE_CALL
from palaver.telemetry.metrics import Metric, all_metrics
from palaver.vocabulary.limits import Limit, all_limits

_EVENTS: Final[Mapping[StoredIn, str]] = {
    StoredIn.LOG: "In the conversation's log and in the run's feed",
    StoredIn.FEED: "In the run's feed alone",
    StoredIn.NOWHERE: "About the stream itself",
}


def events() -> str:
    """docs/reference/events.md from its first heading on: a table for each place where events are kept, with the first
    sentence of each event, and the others below it."""
    parts = []
    for place, title in _EVENTS.items():
        kinds = [kind for kind in EventKind if kind.stored_in is place]
        parts.append(_grouped(("type", "says", "carries"), ((title, _event(kind)) for kind in kinds)))
        parts.append("".join(wrapped(f"- `{kind}`: {more}\n") for kind in kinds if (more := _sentences(kind)[1])))
    return "\n".join(part for part in parts if part)


def errors() -> str:
    """The table of classes in docs/reference/errors.md, with the first sentence about each."""
    said, word = _sentences_below(ErrorClass), {True: "yes", False: "no"}
    rows = (
        (
            *(f"{error_class}", said[error_class.name].partition(". ")[0].rstrip("."), facts.source),
            *(word[facts.retryable], word[facts.recoverable], facts.user_action),
            f"{stop_reason(Failure.of(error_class))}",
        )
        for error_class, facts in FACTS.items()
    )
    heads = ("class", "from", "source", "retryable", "recoverable", "user_action", "ends the run as")
    return "\n".join(_table(heads, rows)) + "\n"


def retry_rules() -> str:
    """The table of rules in docs/reference/errors.md, and behind it what is the same in each of them."""
    policies = {"MODEL_CALL": MODEL_CALL, "TOOL_CALL": TOOL_CALL, "SERVICE_CALL": SERVICE_CALL}
    rows = [
        {
            "policy": name,
            "class": f"{error_class}",
            "attempts": f"{rule.attempts}",
            "first": f"{rule.first:g}",
            "factor": f"{rule.factor:g}",
            "max_delay": f"{rule.max_delay:g}",
            "jitter": rule.jitter,
            "retry_after_cap": f"{rule.retry_after_cap:g}",
            "then": rule.then,
        }
        for name, policy in policies.items()
        for error_class, rule in policy.rules.items()
    ]
    heads = [head for head in rows[0] if len({row[head] for row in rows}) > 1]
    same = ", ".join(f"`{head}` {value}" for head, value in rows[0].items() if head not in heads)
    table = "\n".join(_table(heads, ([row[head] for head in heads] for row in rows)))
    return f"{table}\n\nEach of them has {same}.\n"


def limits() -> str:
    """docs/reference/limits.md from its first heading of a group on: a table, and below it lists of those limits that
    have one answer."""
    groups: dict[str, dict[str, list[Limit]]] = {}
    for each in all_limits().values():
        groups.setdefault(each.group, {}).setdefault(each.answer, []).append(each)
    parts = ("\n\n".join((f"## {group}", *_limits(answers))) for group, answers in groups.items())
    return "\n\n".join(parts) + "\n"


def metrics() -> str:
    """docs/reference/metrics.md from its first heading of a group on."""
    return _grouped(
        ("metric", "type", "labels", "says"), ((each.group, _metric(each)) for each in all_metrics().values())
    )


def presets() -> str:
    """The table of providers in docs/how-to/providers.md."""
    names: dict[str, list[str]] = {}
    for name, preset in PRESETS.items():
        names.setdefault(preset.title, []).append(f"`{name}`")
    rows = []
    for preset in {preset.title: preset for preset in PRESETS.values()}.values():
        place = f"`{preset.base_url}`" if preset.base_url else f"yours, like `{preset.example}`"
        variable = f"`{preset.api_key_env}`" if preset.api_key_env else ""
        rows.append((", ".join(names[preset.title]), preset.title, place, variable))
    return "\n".join(_table(("name", "provider", "`base_url`", "`api_key_env`"), rows)) + "\n"


def policy() -> str:
    """The table of keys in docs/reference/policy.md."""
    return "\n".join(_table(("key", "takes", "says"), _keys(PolicyRule, ""))) + "\n"


_TAKES: Final[Mapping[object, str]] = {bool: "true or false", int: "a whole number", float: "a number"}


def routes() -> str:
    """The list of routes in docs/reference/api.md, from the OpenAPI document: an item for each noun."""
    nouns: dict[str, list[str]] = {}
    for path, item in create_app(dialects=(NATIVE,)).openapi()["paths"].items():
        noun = path.split("/")[2] if path.startswith("/v1/") else "the process"
        nouns.setdefault(noun, []).extend(f"`{method.upper()} {_short(path)}`" for method in item)
    alone = [route for routes in nouns.values() if len(routes) == 1 for route in routes]
    listed = {noun: routes for noun, routes in nouns.items() if len(routes) > 1} | {"others": alone}
    return "".join(wrapped(f"- {noun}: {', '.join(routes)}\n") for noun, routes in listed.items())


def _short(path: str) -> str:
    """A path as the page writes it: ``/v1/runs/{run_id}`` is ``/v1/runs/{id}``."""
    return re.sub(r"{\w+_id}", "{id}", path)


def _keys(model: type[BaseModel], above: str) -> Iterator[tuple[str, ...]]:
    """A row for each key of a table, and of those in it."""
    said = _sentences_below(model)
    for name, field in model.model_fields.items():
        kinds = [kind for kind in get_args(field.annotation) or (field.annotation,) if kind is not NoneType]
        inner = next((kind for kind in kinds if isclass(kind) and issubclass(kind, BaseModel)), None)
        if inner is not None:
            yield from _keys(inner, f"{above}{name}.")
            continue
        takes = ", ".join(dict.fromkeys(_takes(kind) for kind in kinds))
        yield f"`{above}{name}`", takes, said.get(name, "").partition(". ")[0].rstrip(".")


def _takes(kind: object) -> str:
    if isinstance(kind, str):
        return f"`{kind}`"
    if get_origin(kind) is Literal:
        return ", ".join(f"`{word}`" for word in get_args(kind))
    return _TAKES.get(kind, "names and globs")


def _sentences_below(model: type) -> dict[str, str]:
    """The docstring below each field, or below each member of an enumeration."""
    (definition,) = ast.parse(dedent(getsource(model))).body
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    return {
        name.id: " ".join(str(below.value.value).replace("``", "`").split())
        for field, below in pairwise(body)
        if isinstance(field, ast.AnnAssign | ast.Assign)
        for name in (field.targets if isinstance(field, ast.Assign) else [field.target])
        if isinstance(name, ast.Name) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
    }


def _grouped(heads: tuple[str, ...], rows: Iterable[tuple[str, tuple[str, ...]]]) -> str:
    groups: dict[str, list[tuple[str, ...]]] = {}
    for group, row in rows:
        groups.setdefault(group, []).append(row)
    parts = ["\n".join((f"## {group}", "", *_table(heads, its))) for group, its in groups.items()]
    return "\n\n".join(parts) + "\n"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _event(kind: EventKind) -> tuple[str, ...]:
    event = EVENTS[kind]
    fields = (
        f"`{name}`?" if NoneType in get_args(field.annotation) else f"`{name}`"
        for name, field in event.model_fields.items()
        if name not in BaseEvent.model_fields
    )
    return f"`{kind}`", _sentences(kind)[0], ", ".join(fields)


def _sentences(kind: EventKind) -> tuple[str, str]:
    """The first sentence about an event, and the others."""
    first, end, others = " ".join((EVENTS[kind].__doc__ or "").split()).partition(". ")
    return first + end.strip(), others


_MANY: Final = 3
"""Limits of a group with the same answer that are a list."""


def _limits(answers: Mapping[str, list[Limit]]) -> Iterator[str]:
    rows = [
        (each.what, _most(each), f"`{each.name}`", each.answer)
        for found in answers.values()
        if len(found) < _MANY
        for each in found
    ]
    if rows:
        yield "\n".join(_table(("limit", "at most", "counter", "beyond it"), rows))
    for answer, found in answers.items():
        if len(found) >= _MANY:
            items = "".join(wrapped(f"- {each.what}: {_most(each)} (`{each.name}`)\n") for each in found)
            yield f"Beyond one of these, {answer}:\n\n{items.rstrip()}"


def _most(limit: Limit) -> str:
    unit = "" if limit.unit in limit.what.split() else f" {limit.unit}"
    setting = f", `{limit.setting}`" if limit.setting else ""
    return f"{limit.value:,}{unit}{setting}"


def _metric(metric: Metric) -> tuple[str, ...]:
    return f"`{metric.name}`", metric.type, ", ".join(f"`{label}`" for label in metric.labels), metric.help


TABLES: Final[Mapping[str, Callable[[], str]]] = {
    "errors": errors,
    "events": events,
    "limits": limits,
    "metrics": metrics,
    "presets": presets,
    "policy": policy,
    "retry-rules": retry_rules,
    "routes": routes,
    "one-step": one_step.page,
}
"""Each by the name that the command takes."""


def main() -> None:
    """Print one."""
    parser = argparse.ArgumentParser(prog="python -m docs.generate", description="Print the tables of a page.")
    parser.add_argument("page", choices=TABLES)
    print(TABLES[parser.parse_args().page](), end="")


if __name__ == "__main__":
    main()
