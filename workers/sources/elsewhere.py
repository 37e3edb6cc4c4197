"""Tools that other workers have, as they declare them: a model worker offers them to models without their code."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from palaver.errors import InvalidToolCall
from palaver.schemas.arguments import read
from palaver.store.fleet.tools import DeclaredSet
from palaver.tools import ToolDeclaration
from palaver.tools.schemas import fitting
from palaver.vocabulary.step_kinds import MODEL

_LIVES: Final = timedelta(seconds=60)
"""Time after which a set has no workers, where another has: they speak three times a lease."""

_OF_MODELS: Final = frozenset({MODEL.queue})
"""The queues of a worker that makes no calls of others: what it declares counts where no other worker declares it."""


class Elsewhere(Mapping[str, ToolDeclaration]):
    """The declarations of other workers by name, one of each. None of these tools runs here."""

    def __init__(self) -> None:
        self.sets: Mapping[str, DeclaredSet] = {}
        """Every set that is known, by its digest."""
        self.differing: frozenset[str] = frozenset()
        """The tools that workers declare in several versions at the moment."""
        self._tools: Mapping[str, ToolDeclaration] = {}
        self._order: list[str] = []

    def __getitem__(self, name: str) -> ToolDeclaration:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def take(self, sets: Mapping[str, DeclaredSet], in_use: Collection[str] = ()) -> None:
        """Have the tools of these sets from now on. One that none of them has stays if it is ``in_use``: a model that
        was offered it may be about to call it.

        Of several versions the newest counts that has workers, so all model workers come to offer the same one. As long
        as another has workers, too, its word counts where it is the more careful one: it may be the one that is run.
        One without a digest goes before others: its workers would make any call, where others pass on what is not
        theirs.
        """
        self.sets = sets
        newest = max((declared.seen_at for declared in sets.values()), default=None)
        living = {
            digest
            for digest, declared in sets.items()
            if newest and declared.seen_at > newest - _LIVES and declared.queues != _OF_MODELS
        }
        order = sorted(sets, key=lambda digest: (digest in living, sets[digest].since, digest), reverse=True)
        marked = [f"{digest}{'' if digest in living else ' gone'}" for digest in order]
        if marked == self._order:
            return
        versions: dict[str, list[ToolDeclaration]] = {}
        for digest in order:
            for tool in sets[digest].tools:
                found = versions.setdefault(tool.name, [])
                if digest in living or not found:
                    found.append(tool)
        tools = {name: _one_of(found) for name, found in versions.items()}
        self.differing = frozenset(name for name, found in versions.items() if _differ(found))
        held = {name: self._tools[name] for name in in_use if name in self._tools and name not in tools}
        self._tools = tools | held
        self._order = [] if held else marked

    def check(
        self, name: str, text: str, offered: ToolDeclaration | None = None
    ) -> tuple[ToolDeclaration, dict[str, Any]]:
        """The tool, and the arguments in ``text``, if the names are there that its schema requires, and no others: the
        schema that was ``offered`` to the model. Whether a value fits, the worker knows that runs the tool: code may
        take ``"3"`` for 3.

        Raises:
            InvalidToolCall: says to the model all that does not fit.
        """
        tool = self[name]
        declared = offered or tool
        try:
            arguments = read(text)
        except InvalidToolCall as error:
            raise InvalidToolCall(f"the arguments of {name} do not fit: {error}") from None
        return tool, arguments if _well_named(declared.parameters, arguments) else fitting(declared, text)


def _one_of(versions: Sequence[ToolDeclaration]) -> ToolDeclaration:
    """The first of these versions of a tool, as careful as the most careful of them; it is a step in any case."""
    return min(versions, key=lambda version: bool(version.digest)).model_copy(
        update={
            "idempotent": all(version.idempotent for version in versions),
            "risky": any(version.risky for version in versions),
            "inline": False,
        }
    )


def _differ(versions: Sequence[ToolDeclaration]) -> bool:
    """Tell whether a model would see a difference between these versions of a tool."""
    first = versions[0]
    return any((each.description, each.parameters) != (first.description, first.parameters) for each in versions)


def _well_named(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
    """Tell whether ``arguments`` have the names that ``schema`` requires, and no others if it allows none."""
    required, properties = schema.get("required"), schema.get("properties")
    needed = required if isinstance(required, list) else ()
    if any(isinstance(name, str) and name not in arguments for name in needed):
        return False
    known = properties if isinstance(properties, dict) else ()
    return schema.get("additionalProperties") is not False or all(name in known for name in arguments)
