"""A call of a tool that workers declare differently: who makes it, who leaves it to others, and until when."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.errors import InvalidToolCall
from palaver.schemas.models import ToolCall
from palaver.steps.leases import Lease
from palaver.steps.verdicts import Postpone
from palaver.store.fleet.fleet import KNOWN_FOR
from palaver.store.redis import single_flight
from palaver.tools import ToolDeclaration, ToolSet
from palaver.tools.declared import declarations_in
from palaver.vocabulary.lifecycle import WaitReason
from tests.unit.api_world import World, world
from tests.unit.test_elsewhere import NOW, found, having
from workers.sources import Toolbox
from workers.sources.elsewhere import Elsewhere
from workers.steps import tool_versions
from workers.steps.capabilities import offered_again
from workers.steps.tool_versions import ToolVersions


def _declared(*required: str, optional: tuple[str, ...] = ()) -> ToolDeclaration:
    properties = {name: {"type": "string"} for name in (*required, *optional)}
    schema = {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}
    return ToolDeclaration(name="pay", description="", parameters=schema, timeout=5).digested()


OLD, NEW, WIDER = _declared("order"), _declared("order", "note"), _declared("order", optional=("note",))


class _Source:
    name = "one tool"

    def __init__(self, declared: ToolDeclaration) -> None:
        self.declarations = (declared,)

    def check(self, declared: ToolDeclaration, text: str) -> dict[str, Any]:
        return Elsewhere.check(having({"a": found(declared, since=10)}), declared.name, text)[1]


def _lease(arguments: str, shown: ToolDeclaration | None, **more: Any) -> Lease:
    lease = object.__new__(Lease)
    call = ToolCall(id="c1", name="pay", arguments=arguments)
    facts = {"call": call, "shown": shown and shown.digest, "kept": None, "edited": False, "lacking_for": 0.0, **more}
    for name, value in facts.items():
        object.__setattr__(lease, name, value)
    return lease


@pytest.fixture(autouse=True)
def _looks_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_flight, "_AGAIN", 0.0)
    monkeypatch.setattr(tool_versions, "_LASTS", 0.0)


async def _verdict(api: World, here: ToolDeclaration, lease: Lease) -> Postpone | None:
    versions = ToolVersions(api.store, Toolbox([_Source(here)]), ("tools",), 1.0)  # type: ignore[list-item]
    try:
        return await versions.elsewhere(lease)
    finally:
        await versions.close()


@pytest.mark.parametrize(
    ("others", "arguments", "shown", "goes_on"),
    [
        ([], '{"order": "1"}', OLD, False),
        ([NEW], '{"order": "1", "note": "x"}', NEW, True),
        ([], '{"order": "1", "note": "x"}', NEW, False),
        ([NEW], '{"order": "1", "note": "x"}', None, True),
        ([NEW], '{"order": "1"}', None, False),
        ([WIDER], '{"order": "1"}', WIDER, True),
        ([], '{"order": "1"}', WIDER, False),
        ([WIDER], '{"order": "1", "note": "x"}', NEW, True),
        ([NEW], '{"nothing": "1"}', None, False),
    ],
    ids=[
        *("the same", "theirs", "gone, and does not fit", "of an older model worker, theirs", "of one, ours"),
        *("theirs, though it fits", "gone, and fits", "gone, and fits a third", "fits no version"),
    ],
)
async def test_a_call_goes_to_the_version_that_was_shown_or_to_one_that_it_fits(
    others: list[ToolDeclaration], arguments: str, shown: ToolDeclaration | None, goes_on: bool
) -> None:
    async with world(tools=()) as api:
        for other in others:
            await api.store.tools.publish(ToolSet.of([other]), ("tools",))
        verdict = await _verdict(api, OLD, _lease(arguments, shown))
    assert verdict == (Postpone(offered_again(0.0), "tool:pay", WaitReason.NO_WORKER) if goes_on else None)


async def test_it_does_not_wait_for_ever_and_not_for_workers_of_other_queues() -> None:
    async with world(tools=()) as api:
        await api.store.tools.publish(ToolSet.of([WIDER]), ("gpu",))
        assert await _verdict(api, OLD, _lease('{"order": "1"}', WIDER)) is None
        await api.store.tools.publish(ToolSet.of([WIDER]), ("tools",))
        fits, misfits = '{"order": "1"}', '{"order": "1", "note": "x"}'
        assert await _verdict(api, OLD, _lease(fits, WIDER, lacking_for=59.0)) is not None
        assert await _verdict(api, OLD, _lease(fits, WIDER, lacking_for=61.0)) is None, "it is made here"
        assert await _verdict(api, OLD, _lease(misfits, WIDER, lacking_for=KNOWN_FOR)) is not None
        assert await _verdict(api, OLD, _lease(misfits, WIDER, lacking_for=KNOWN_FOR + 1)) is None, "the model is told"


async def test_arguments_that_a_person_wrote_go_where_they_fit() -> None:
    async with world(tools=()) as api:
        await api.store.tools.publish(ToolSet.of([NEW]), ("tools",))
        assert await _verdict(api, OLD, _lease('{"order": "1"}', NEW, edited=True)) is None
        assert await _verdict(api, NEW, _lease('{"order": "1"}', NEW, edited=True)) is None, "and else are told"
        assert await _verdict(api, OLD, _lease('{"order": "1", "note": ""}', OLD, edited=True)) is not None


async def test_a_call_waits_while_the_store_is_away_and_nothing_is_read_where_all_agree() -> None:
    async with world(tools=()) as api:
        api.server.connected = False
        assert await _verdict(api, OLD, _lease('{"order": "1"}', NEW)) is not None
        assert await _verdict(api, OLD, _lease('{"order": "1"}', OLD)) is None
        assert await _verdict(api, OLD, _lease('{"nothing": "1"}', OLD)) is None
        assert await _verdict(api, OLD, _lease('{"order": "1"}', None)) is None
        api.server.connected = True


def test_a_digest_is_of_what_a_model_sees_and_is_told() -> None:
    slower = OLD.model_copy(update={"timeout": 9.0, "risky": True}).digested()
    assert slower.digest == OLD.digest != NEW.digest
    (told,) = declarations_in(ToolSet.of([OLD]).text)
    assert told == OLD
    assert told.digest == OLD.digest


def test_models_are_offered_what_workers_declare_that_would_make_any_call() -> None:
    older = OLD.model_copy()
    older._digest = ""
    for sets in ({"a": found(older, since=900), "b": found(NEW, since=10)}, {"a": found(NEW, since=9)}):
        offered = having(sets)["pay"]
        assert offered.parameters == (OLD if len(sets) == 2 else NEW).parameters
    assert having({"a": found(OLD, since=900), "b": found(NEW, since=10)}).differing == {"pay"}
    assert having({"a": found(OLD, since=900, seen=70), "b": found(NEW, since=10)}).differing == frozenset()


def test_what_was_offered_counts_though_workers_have_another_version_by_now() -> None:
    toolbox = Toolbox([], elsewhere=having({"b": found(NEW, since=10)}))
    assert toolbox.check("pay", '{"order": "1"}', OLD)[1] == {"order": "1"}
    with pytest.raises(InvalidToolCall, match='"note" is a required property'):
        toolbox.check("pay", '{"order": "1"}', NEW)


def test_a_model_workers_own_copy_of_a_tool_counts_only_where_no_other_worker_declares_it() -> None:
    sets = {"a": found(NEW, since=900), "b": found(OLD, since=10)}
    of_models = {"b": type(sets["b"])(sets["b"].tools, NOW, NOW, frozenset({"model"}))}
    toolbox = Toolbox([_Source(OLD)], elsewhere=having(sets | of_models))  # type: ignore[list-item]
    assert toolbox["pay"].parameters == NEW.parameters
    toolbox = Toolbox([_Source(OLD)], elsewhere=having(of_models))  # type: ignore[list-item]
    assert toolbox["pay"].parameters == OLD.parameters
