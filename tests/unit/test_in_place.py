"""Which steps a worker goes on with where it is, and what Celery is told of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from celery import Celery
from celery.worker import state
from kombu.message import Message as CeleryMessage

from palaver.config.settings import Settings
from palaver.schemas.models import AgentSpec, Message, ToolCall
from palaver.steps.leases import Delivery, Lease, LogTail, OfferedPlace
from palaver.steps.verdicts import Continue, Finish, OpenCall, ToolOutcome, Verdict
from palaver.steps.wire import headers_of, payload_of
from palaver.vocabulary.ids import new_conversation_id, new_run_id
from palaver.vocabulary.lifecycle import StopReason
from palaver.vocabulary.step_kinds import MODEL
from workers.broker.jobs import Job, follower, hand_over
from workers.protocols import CHAT_COMPLETIONS
from workers.steps import step_functions as step_functions  # each `@step` in it is a task
from workers.steps.active_step import ActiveStep, InterruptReason
from workers.steps.conversations import CachedConversation
from workers.steps.in_place import InPlace, PlaceOffer
from workers.steps.request import StepRequest

HM = Continue(Message(role="assistant", content="hm"))
ANSWERED = Continue(outcomes=(ToolOutcome(Message(role="tool", call_id="a", name="t", content="42")),))
RUN, CONVERSATION = new_run_id("00"), new_conversation_id(1)


class Pool:
    """Has tasks follow one another as long as it `may`."""

    def __init__(self) -> None:
        self.may = True
        self.begun: list[Delivery] = []
        self.reserved = 0

    def can_go_on(self) -> bool:
        return self.may

    def go_on(self, delivery: Delivery) -> None:
        self.begun.append(delivery)

    @contextmanager
    def reserving(self, places: int) -> Iterator[None]:
        self.reserved += places
        try:
            yield
        finally:
            self.reserved -= places


class World:
    """A worker with four places."""

    def __init__(self, **settings: Any) -> None:
        self.active: set[ActiveStep] = set()
        self.pool = Pool()
        self.in_place = InPlace(Settings(**settings), "w1", 4, self.active, ("model", "tools"))
        self.in_place.pool = self.pool
        self.known = CachedConversation(CHAT_COMPLETIONS)
        self.known.position, self.known.position_at = 7, 1234

    def step(self, step: str = "1") -> ActiveStep:
        active = ActiveStep(RUN, step)
        self.active.add(active)
        return active

    @contextmanager
    def offer(self, active: ActiveStep, verdict: Verdict = HM) -> Iterator[PlaceOffer]:
        with self.in_place.offer(active, verdict, self.known) as offer:
            yield offer

    def place(self, active: ActiveStep) -> OfferedPlace:
        with self.offer(active) as offer:
            assert offer.place is not None
            return offer.place

    def offers(self, active: ActiveStep, verdict: Verdict = HM) -> bool:
        with self.offer(active, verdict) as offer:
            return offer.place is not None

    def taken(self, active: ActiveStep) -> ActiveStep:
        """The step that goes on behind this one."""
        with self.offer(active) as offer:
            self.in_place.go_on(offer, lease(str(int(active.step) + 1)))
        self.active.remove(active)
        following = self.in_place.begin(RUN, str(int(active.step) + 1))
        assert following is not None
        return following


def lease(step: str) -> Lease:
    return Lease(RUN, CONVERSATION, MODEL, step, 1, 1, 1, 0.0, 60.0, AgentSpec(model="a/b"), None, LogTail())


def test_a_place_says_whose_it_is_and_what_is_known_there() -> None:
    world = World()
    place, other = world.place(world.step()), world.place(world.step())
    assert (place.worker, place.known, place.known_at, place.queues) == ("w1", 7, 1234, "model tools")
    assert place.nonce != other.nonce


def test_the_step_that_follows_begins_under_its_lease() -> None:
    world = World()
    with world.offer(world.step("3")) as offer:
        world.in_place.go_on(offer, lease("4"))
    (delivery,) = world.pool.begun
    assert (delivery.run_id, delivery.conversation_id, delivery.step) == (RUN, CONVERSATION, "4")
    assert (delivery.queue, delivery.task_id) == ("model", f"{RUN}:4:1")
    following = world.in_place.begin(RUN, "4")
    assert following is not None
    assert following.lease == lease("4")
    assert following in world.active
    assert world.in_place.begin(RUN, "4") is None


def test_a_cancel_finds_it_while_the_step_before_is_settled() -> None:
    world = World()
    active = world.step()
    with world.offer(active) as offer:
        for each in world.active:
            each.interrupt(InterruptReason.CANCELLED)
        world.in_place.go_on(offer, lease("2"))
    following = world.in_place.begin(RUN, "2")
    assert following is not None
    assert following.reason is InterruptReason.CANCELLED
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(begun(following))


async def begun(active: ActiveStep) -> None:
    active.begin(lease(active.step))


def test_an_offer_that_is_not_taken_leaves_nothing() -> None:
    world = World()
    active = world.step()
    assert world.offers(active)
    assert world.active == {active}
    assert world.in_place.begin(RUN, "2") is None
    with pytest.raises(TimeoutError), world.offer(active):
        raise TimeoutError
    assert world.active == {active}


@pytest.mark.parametrize(
    "verdict",
    [
        Finish(Message(role="assistant", content="bye"), StopReason.END_TURN),
        Continue(
            Message(role="assistant", tool_calls=(ToolCall(id="a", name="t"),)),
            calls=(OpenCall(ToolCall(id="a", name="t"), idempotent=False),),
        ),
    ],
)
def test_what_does_not_go_on_with_the_model_is_no_offer(verdict: Verdict) -> None:
    world = World()
    assert not world.offers(world.step(), verdict)


def test_calls_that_are_at_hand_are_what_may_follow() -> None:
    world = World()
    asked = [ToolCall(id=call_id, name="t") for call_id in "abc"]
    opened = tuple(OpenCall(call, idempotent=False, at_hand=call.id != "b") for call in asked)
    verdict = Continue(Message(role="assistant", tool_calls=tuple(asked)), calls=opened)
    active = world.step("3")
    with world.offer(active, verdict) as offer:
        assert list(offer.following) == ["3/a", "3/c"]
        call = lease("3").of_call(asked[0], None, 2, 60.0, "")
        world.in_place.go_on(offer, call)
    (delivery,) = world.pool.begun
    assert (delivery.task_name, delivery.task_id, delivery.title) == ("palaver.tool_step", f"{RUN}:3:a:1", "t")
    following = world.in_place.begin(RUN, "3/a")
    assert following is not None
    assert following.lease == call
    assert world.active == {active, following}
    assert (active.in_place, following.in_place) == (0, 0)


def test_the_model_may_follow_a_tool_step() -> None:
    world = World()
    active = world.step("3/a")
    with world.offer(active, ANSWERED) as offer:
        world.in_place.go_on(offer, lease("4"))
    following = world.in_place.begin(RUN, "4")
    assert following is not None
    assert following.in_place == 1


def test_a_step_whose_conversation_is_gone_offers_nothing() -> None:
    world = World()
    with world.in_place.offer(world.step(), HM, None) as offer:
        assert offer.place is None


def test_who_lost_the_step_and_offers_as_well_takes_nothing_away() -> None:
    """A step may be worked on twice in a process: its lease was lost, and came to it again."""
    world = World()
    with world.offer(world.step()), world.offer(world.step()) as newest:
        world.in_place.go_on(newest, lease("2"))
    following = world.in_place.begin(RUN, "2")
    assert following is newest.following["2"]
    assert following in world.active


def test_nor_one_in_a_pool_that_cannot() -> None:
    world = World()
    world.pool.may = False
    assert not world.offers(world.step())
    world.in_place.pool = None
    assert not world.offers(world.step())


def test_the_bound_of_steps() -> None:
    world = World(in_place_steps=2)
    third = world.taken(world.taken(world.step("1")))
    assert third.in_place == 2
    assert not world.offers(third)
    # By a delivery, it counts anew.
    assert world.offers(world.step("4"))
    assert not World(in_place_steps=0).offers(world.step("1"))


def test_the_bound_of_time() -> None:
    world = World(in_place_seconds=60)
    second = world.taken(world.step("1"))
    assert world.offers(second)
    second.in_place_since -= 61
    assert not world.offers(second)


def test_its_room_is_what_it_could_claim_besides() -> None:
    world = World()
    one, _ = world.step(), world.step()
    assert world.place(one).room == 2
    with world.in_place.claiming():
        assert world.place(one).room == 3
    with world.offer(world.step()):
        # What is offered a place is in none of its own.
        assert world.place(one).room == 1
    for _ in range(4):
        world.step()
    assert world.place(one).room == 0


def asking(calls: int) -> Continue:
    """The model asks for so many calls, all of which are at hand."""
    asked = tuple(ToolCall(id=f"c{number}", name="t") for number in range(calls))
    opened = tuple(OpenCall(call, idempotent=False, at_hand=True) for call in asked)
    return Continue(Message(role="assistant", tool_calls=asked), calls=opened)


def test_what_calls_beside_the_first_may_take_is_offered_once() -> None:
    """Four places, and each offer is taken up to its room and one."""
    world = World()
    one, two = world.step("1"), world.step("5")
    with world.offer(one, asking(3)) as offer, world.offer(two, asking(3)) as other:
        assert offer.place is not None
        assert other.place is not None
        assert (offer.place.room, other.place.room) == (2, 0)
        assert world.pool.reserved == 2
    assert world.place(two).room == 2
    assert world.pool.reserved == 0


def test_calls_that_have_not_begun_have_their_places() -> None:
    world = World()
    one, two = world.step("1"), world.step("5")
    with world.offer(one, asking(3)) as offer:
        for call in ("c1", "c2"):
            world.in_place.go_on(offer, lease("1").of_call(ToolCall(id=call, name="t"), None, 2, 60.0, ""))
    assert world.place(two).room == 1
    world.active.remove(one)
    for call in ("c1", "c2"):
        assert world.in_place.begin(RUN, f"1/{call}") is not None
    assert world.place(two).room == 1


class Events:
    """Whoever Celery tells."""

    enabled = True

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def send(self, kind: str, **fields: Any) -> None:
        self.told.append((fields["uuid"], kind))


class Celebrated:
    """A task that Celery has handed to the pool, and what becomes of its message."""

    def __init__(self) -> None:
        app = Celery("following", broker="memory://", set_as_current=False)
        task = app.tasks[MODEL.task]
        self.events, self.acknowledged = Events(), 0
        self.delivery = Delivery("model", RUN, CONVERSATION, "1", 1, "m for support")
        message = CeleryMessage(delivery_tag="1", headers=headers_of(self.delivery), properties={})
        self.request = StepRequest(
            message,
            on_ack=self._acknowledge,
            hostname="here",
            eventer=self.events,
            app=app,
            task=task,
            body=payload_of(self.delivery),
            headers=headers_of(self.delivery),
            decoded=True,
        )
        args = (task.name, self.delivery.task_id, self.request.request_dict, None)
        self.job = Job(cast(Any, None), cast(Any, None), args, self.request.on_success, self.request.on_accepted)
        state.task_reserved(self.request)
        self.job.accept_callback(1, 0.0)

    def _acknowledge(self, *_: Any) -> None:
        self.acknowledged += 1

    def follow(self, job: Job, step: str) -> Job:
        """A step in the place of the one of `job`, which ends."""
        following = follower(job, Delivery("model", RUN, CONVERSATION, step, 1, "m for support"))
        begin = hand_over(job, following)
        job.callback((0, "'run is running'", 0.1))
        begin()
        return following


def test_celery_is_told_of_each_as_of_any_task() -> None:
    first = Celebrated()
    second = first.follow(first.job, "2")
    assert {f"{RUN}:2:1"} == {request.id for request in state.active_requests if request.id.startswith(RUN)}
    third = first.follow(second, "3")
    third.callback((0, "'run is completed'", 0.1))
    kinds = ("task-received", "task-started", "task-succeeded")
    own = [(f"{RUN}:1:1", kind) for kind in kinds[1:]]
    assert first.events.told == own + [(f"{RUN}:{step}:1", kind) for step in (2, 3) for kind in kinds]
    assert not {task_id for task_id in state.requests if task_id.startswith(RUN)}
    _, task_id, facts, payload = third.args
    assert (task_id, facts["id"], facts["args"]) == (f"{RUN}:3:1", task_id, [RUN, CONVERSATION, "3", 1])
    assert (facts["argsrepr"], facts["kwargsrepr"]) == ("m for support", f"palaver show {RUN}")
    assert payload[0] == facts["args"]


def test_its_message_is_acknowledged_behind_the_last_one() -> None:
    first = Celebrated()
    second = first.follow(first.job, "2")
    third = first.follow(second, "3")
    assert first.acknowledged == 0
    third.callback((0, "'run is completed'", 0.1))
    assert first.acknowledged == 1


def test_of_several_that_follow_one_has_the_message() -> None:
    first = Celebrated()
    calls = [follower(first.job, Delivery("tools", RUN, CONVERSATION, f"1/{call_id}", 1)) for call_id in "ab"]
    begins = [hand_over(first.job, call) for call in calls]
    first.job.callback((0, "'run is running'", 0.1))
    for begin in begins:
        begin()
    assert [call.args[0] for call in calls] == ["palaver.tool_step"] * 2, "what the pool runs is what Celery is told"
    tasks = {request.id: request.name for request in state.active_requests if request.id.startswith(RUN)}
    assert tasks == {f"{RUN}:1:a:1": "palaver.tool_step", f"{RUN}:1:b:1": "palaver.tool_step"}
    calls[1].callback((0, "'run is running'", 0.1))
    assert first.acknowledged == 0
    calls[0].callback((0, "'run is running'", 0.1))
    assert first.acknowledged == 1
    assert not {task_id for task_id in state.requests if task_id.startswith(RUN)}


def test_a_message_that_cannot_be_acknowledged_any_more_is_not() -> None:
    """The connection that brought it is lost."""
    first = Celebrated()
    first.request.acknowledged = True
    second = first.follow(first.job, "2")
    second.callback((0, "'run is completed'", 0.1))
    assert first.acknowledged == 0


def test_a_step_without_a_title_is_named_by_its_own_number() -> None:
    first = Celebrated()
    following = follower(first.job, Delivery("model", RUN, CONVERSATION, "2", 1))
    assert following.args[2]["argsrepr"] == f"{RUN} step 2"
