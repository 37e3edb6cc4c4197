"""Whose words come to a call that needs a second person, by whichever way: none of these persons approves it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

from palaver.config.settings import Settings
from palaver.errors import StateConflict
from palaver.schemas.conversation import ConversationPatch, Fork, NewConversation
from palaver.schemas.models import Message, Retry, Submission
from palaver.steps.leases import Delivery, Lease
from palaver.store import Store
from palaver.store.redis import keys
from palaver.vocabulary.limits import limit_of
from tests.contract.store_driver import AGENT, StoreDriver, approve, calls, deny, edit, output, say
from tests.contract.test_agent_calls import LEAD, Family
from tests.contract.test_vault import NEW, with_keys

_PAY = "pay 777 to ann"


class Talk:
    """A conversation in which several people say something, and whose model asks for a payment."""

    def __init__(self, driver: StoreDriver, conversation_id: str | None = None) -> None:
        self.driver = driver
        self.id = conversation_id

    async def submit(self, by: str | None, text: str = "go on", **more: Any) -> str:
        """The id of a new run, submitted by a person or without a name."""
        how = {name: more.pop(name) for name in ("agent_by", "voices", "condenses") if name in more}
        more.setdefault("agent", None if self.id else AGENT)
        body = Submission(input=text or (), conversation_id=self.id, **more)
        made = await self.driver.store.runs.submit(body, by=by, **how)
        self.id = (await self.driver.get(made.run_id)).conversation_id
        return made.run_id

    async def say(self, by: str | None, text: str = _PAY) -> None:
        """Words without a run."""
        await self.driver.store.history.append(self.id or "", [Message(role="user", content=text)], by=by)

    async def lease(self, run_id: str) -> Lease:
        """Work on the run's present model step."""
        run = await self.driver.get(run_id)
        return await self.driver.claim(Delivery("model", run_id, run.conversation_id, str(run.step or 1), 1))

    async def ask(self, run_id: str, *others: str, **waits: Any) -> str:
        """Let the model ask for the payment: the run's id."""
        verdict = calls("c1", *others, approval=["c1"], second_person=["c1"], **waits)
        await self.driver.store.steps.settle(await self.lease(run_id), verdict)
        return run_id

    async def paid(self, run_id: str, by: str) -> None:
        """Let a person approve the payment, make it, and let the run end."""
        acted = await self.driver.act(run_id, approve("all"), by=by)
        await self.driver.answer(await self.driver.claim(acted.settled.deliveries[0]))
        await self.driver.finish(await self.lease(run_id))

    async def said_and_done(self, by: str, text: str = _PAY) -> str:
        """A run that ends without a call."""
        run_id = await self.submit(by, text)
        await self.driver.finish(await self.lease(run_id))
        return run_id


@pytest.fixture
def talk(driver: StoreDriver) -> Talk:
    return Talk(driver)


async def check(driver: StoreDriver, run_id: str, *, none_of: str, but: str) -> None:
    """See that the first ones do not approve the call that waits, and that the last one does."""
    for name in none_of.split():
        with pytest.raises(StateConflict) as conflict:
            await driver.act(run_id, approve("all"), by=name)
        assert conflict.value.code == "second_person_required", name
    await driver.act(run_id, approve("all"), by=but)
    assert not (await driver.get(run_id)).pending_actions


async def test_who_spoke_in_an_earlier_run(driver: StoreDriver, talk: Talk) -> None:
    await talk.said_and_done("ann")
    await check(driver, await talk.ask(await talk.submit("bob")), none_of="ann bob", but="cid")


async def test_who_spoke_without_a_run(driver: StoreDriver, talk: Talk) -> None:
    await talk.said_and_done("bob", "hello")
    await talk.say("ann")
    await check(driver, await talk.ask(await talk.submit("bob")), none_of="ann bob", but="cid")


async def test_who_spoke_without_a_run_and_without_a_name(driver: StoreDriver, talk: Talk) -> None:
    await talk.said_and_done("bob", "hello")
    await talk.say(None)
    run_id = await talk.ask(await talk.submit("bob"))
    with pytest.raises(StateConflict):
        await driver.act(run_id, approve("all"), by="cid")


@pytest.mark.parametrize("how", ["in the run", "in the conversation", "in a run before"])
async def test_who_spoke_while_the_run_waited_for_its_time(driver: StoreDriver, talk: Talk, how: str) -> None:
    await talk.said_and_done("bob", "hello")
    later = await driver.store.runs.now() + timedelta(hours=1)
    run_id = await talk.submit("bob", start_after=later)
    match how:
        case "in the run":
            await driver.act(run_id, say(_PAY), by="ann")
        case "in the conversation":
            await talk.say("ann")
        case _:
            await talk.said_and_done("ann")
    await driver.hasten(run_id, "start")
    await check(driver, await talk.ask(run_id), none_of="ann bob", but="cid")


async def test_who_spoke_into_a_run_that_stood_in_line(driver: StoreDriver, talk: Talk) -> None:
    first = await talk.submit("bob", "hello")
    second = await talk.submit("bob")
    await driver.act(second, say(_PAY), by="ann")
    await driver.finish(await talk.lease(first))
    await driver.hasten(second, "start")
    await driver.finish(await talk.lease(second))
    await check(driver, await talk.ask(await talk.submit("bob")), none_of="ann bob", but="cid")


async def test_who_is_to_speak_in_a_run_behind_this_one_has_not_spoken_yet(driver: StoreDriver, talk: Talk) -> None:
    first = await talk.submit("ann")
    await talk.submit("bob")
    await check(driver, await talk.ask(first), none_of="ann", but="bob")


@pytest.mark.parametrize("how", ["steers", "answers for a tool", "denies with a comment", "edits another call"])
async def test_who_put_words_into_the_run_before(driver: StoreDriver, talk: Talk, how: str) -> None:
    run_id = await talk.submit("bob", "hello")
    await driver.store.steps.settle(await talk.lease(run_id), calls("c2", "c3", approval=["c2"], client=["c3"]))
    action = await driver.action(run_id, "c2")
    match how:
        case "steers":
            await driver.act(run_id, say(_PAY), by="ann")
        case "answers for a tool":
            await driver.act(run_id, output("c3", _PAY), by="ann")
        case "denies with a comment":
            await driver.act(run_id, deny(action.id, _PAY), by="ann")
        case _:
            await driver.act(run_id, edit(action.id, x=777), by="ann")
    await driver.store.runs.cancel(run_id)
    await check(driver, await talk.ask(await talk.submit("bob")), none_of="ann bob", but="cid")


async def test_who_denies_without_a_word_says_nothing(driver: StoreDriver, talk: Talk) -> None:
    run_id = await talk.submit("bob", "hello")
    await driver.store.steps.settle(await talk.lease(run_id), calls("c2", approval=["c2"]))
    await driver.act(run_id, deny("all"), by="ann")
    await check(driver, await talk.ask(run_id), none_of="bob", but="ann")


async def test_a_denial_with_a_comment_is_no_word_about_a_call_that_it_came_with(
    driver: StoreDriver, talk: Talk
) -> None:
    run_id = await talk.submit("bob", "hello")
    waits = calls("c1", "c2", approval=["c1", "c2"], second_person=["c1"])
    await driver.store.steps.settle(await talk.lease(run_id), waits)
    first, second = (await driver.get(run_id)).pending_actions
    assert (await driver.act(run_id, deny(second.id, "No."), approve(first.id), by="ann")).settled.deliveries


async def test_who_submitted_what_another_one_retries(driver: StoreDriver, talk: Talk) -> None:
    run_id = await talk.submit("ann", _PAY)
    await driver.give_up(await talk.lease(run_id))
    again = (await driver.store.control.retry(run_id, Retry(), by="bob")).run_id
    await driver.give_up(await talk.lease(again))
    once_more = (await driver.store.control.retry(again, Retry(), by="cid")).run_id
    await check(driver, await talk.ask(once_more), none_of="ann bob cid", but="dan")


async def test_who_submitted_what_is_retried_with_many(driver: StoreDriver, talk: Talk) -> None:
    run_id = await talk.submit("ann", _PAY)
    await driver.give_up(await talk.lease(run_id))
    (made,) = await driver.store.bulk.retry([(await driver.get(run_id), Retry())], by="bob")
    assert not isinstance(made, Exception)
    await check(driver, await talk.ask(made.run_id), none_of="ann bob", but="cid")


async def test_who_submitted_what_never_began_and_another_one_retries(driver: StoreDriver, talk: Talk) -> None:
    await talk.said_and_done("bob", "hello")
    later = await driver.store.runs.now() + timedelta(hours=1)
    behind = await talk.submit("ann", _PAY, start_after=later, start_by=later)
    await driver.act(behind, say(_PAY), by="dan")
    await driver.redis.hset(keys.run(behind), "start_by", 1)
    await driver.hasten(behind, "end")
    again = (await driver.store.control.retry(behind, Retry(), by="bob")).run_id
    await driver.finish(await talk.lease(again))
    await check(driver, await talk.ask(await talk.submit("bob")), none_of="ann bob dan", but="cid")


async def test_who_submitted_what_another_one_forks(driver: StoreDriver, talk: Talk) -> None:
    run_id = await talk.said_and_done("ann")
    made = await driver.store.control.retry(run_id, Retry(from_step=1), by="bob")
    await check(driver, await talk.ask(made.run_id), none_of="ann bob", but="cid")


async def test_who_spoke_in_what_another_one_forks_and_who_forked_it(driver: StoreDriver, talk: Talk) -> None:
    await talk.said_and_done("ann")
    made, _ = await driver.store.history.fork(talk.id or "", Fork(), by="bob")
    fork = Talk(driver, made.id)
    await check(driver, await fork.ask(await fork.submit("cid")), none_of="ann bob cid", but="dan")


async def test_who_forked_a_fork(driver: StoreDriver, talk: Talk) -> None:
    await talk.said_and_done("ann")
    for by in ("bob", "cid"):
        made, _ = await driver.store.history.fork(talk.id or "", Fork(), by=by)
        talk.id = made.id
    await check(driver, await talk.ask(await talk.submit("dan")), none_of="ann bob cid dan", but="eve")


async def test_who_spoke_before_it_was_condensed(driver: StoreDriver, talk: Talk) -> None:
    await talk.said_and_done("ann")
    condensing = await talk.submit("bob", "", condenses=True)
    await driver.finish(await talk.lease(condensing))
    await check(driver, await talk.ask(await talk.submit("bob")), none_of="ann bob", but="cid")


async def test_who_spoke_in_what_is_withdrawn_or_rolled_back(driver: StoreDriver, talk: Talk) -> None:
    await talk.said_and_done("dan", "hello")
    through = (await driver.store.runs.conversation(talk.id or "")).entries
    await talk.said_and_done("ann")
    await driver.store.history.withdraw(talk.id or "", through, by="bob")
    rolled = await talk.submit("eve")
    await driver.store.runs.cancel(rolled, mode="rollback")
    await check(driver, await talk.ask(await talk.submit("bob")), none_of="ann bob dan eve", but="cid")


async def test_who_wrote_the_agent(driver: StoreDriver, talk: Talk) -> None:
    run_id = await talk.submit("bob", agent=AGENT, agent_by={"ann", "bob"})
    await check(driver, await talk.ask(run_id), none_of="ann bob", but="cid")


async def test_who_wrote_the_agent_that_the_conversation_has(driver: StoreDriver, talk: Talk) -> None:
    await talk.submit("bob", "hello", agent=AGENT, agent_by={"ann", "bob"})
    (first,) = (await driver.store.runs.list({}, limit=9)).runs
    await talk.paid(await talk.ask(first.id), "cid")
    await check(driver, await talk.ask(await talk.submit("dan")), none_of="ann bob dan", but="cid")


async def test_who_gave_a_conversation_its_agent_and_who_changed_it(driver: StoreDriver) -> None:
    conversations = driver.store.conversations
    begun, _ = await conversations.begin(NewConversation(agent=AGENT), agent_by={"ann"})
    await conversations.change(begun.id, ConversationPatch(agent=AGENT), agent_by={"bob"})
    made, _ = await driver.store.history.fork(begun.id, Fork(), by="cid")
    talk = Talk(driver, made.id)
    await check(driver, await talk.ask(await talk.submit("dan")), none_of="ann bob cid dan", but="eve")


async def test_who_wrote_the_agent_of_a_run_that_another_one_retries(driver: StoreDriver, talk: Talk) -> None:
    run_id = await talk.submit("bob", agent=AGENT, agent_by={"ann", "bob"})
    await driver.give_up(await talk.lease(run_id))
    again = (await driver.store.control.retry(run_id, Retry(), by="cid")).run_id
    await check(driver, await talk.ask(again), none_of="ann bob cid", but="dan")


async def test_who_had_a_part_in_it_otherwise(driver: StoreDriver, talk: Talk) -> None:
    run_id = await talk.submit("bob", voices={"ann"})
    await check(driver, await talk.ask(run_id), none_of="ann bob", but="cid")


async def test_another_ones_approval_ends_the_part_of_those_who_spoke_before(driver: StoreDriver, talk: Talk) -> None:
    await talk.said_and_done("dan", "hello")
    await talk.paid(await talk.ask(await talk.submit("ann", _PAY)), "bob")
    await check(driver, await talk.ask(await talk.submit("bob")), none_of="bob", but="ann")


async def test_words_after_the_approval_are_not_approved(driver: StoreDriver, talk: Talk) -> None:
    run_id = await talk.ask(await talk.submit("ann", _PAY))
    acted = await driver.act(run_id, approve("all"), by="bob")
    await driver.act(run_id, say("and 888"), by="dan")
    await driver.answer(await driver.claim(acted.settled.deliveries[0]))
    await driver.finish(await talk.lease(run_id))
    await check(driver, await talk.ask(await talk.submit("bob")), none_of="bob dan", but="ann")


async def test_words_between_the_question_and_the_approval_are_not_approved(driver: StoreDriver, talk: Talk) -> None:
    run_id = await talk.ask(await talk.submit("ann", _PAY), "c3", client=["c3"])
    await driver.act(run_id, say("and 888"), by="dan")
    await driver.act(run_id, output("c3", "and 999"), by="eve")
    await talk.paid(run_id, "bob")
    await check(driver, await talk.ask(await talk.submit("bob")), none_of="bob dan eve", but="ann")


async def test_words_that_the_model_had_not_heard_when_it_asked_are_not_approved(
    driver: StoreDriver, talk: Talk
) -> None:
    run_id = await talk.submit("ann", _PAY)
    lease = await talk.lease(run_id)
    await driver.act(run_id, say("and 888"), by="dan")
    await driver.store.steps.settle(lease, calls("c1", approval=["c1"], second_person=["c1"]))
    await talk.paid(run_id, "bob")
    await check(driver, await talk.ask(await talk.submit("bob")), none_of="ann bob dan", but="cid")


@pytest.mark.parametrize("how", ["denied", "expired", "cancelled", "failed"])
async def test_a_turn_counts_as_approved_if_all_of_it_is(driver: StoreDriver, talk: Talk, how: str) -> None:
    run_id = await talk.submit("ann", _PAY)
    waits = calls("c1", "c2", approval=["c1", "c2"], second_person=["c1", "c2"])
    await driver.store.steps.settle(await talk.lease(run_id), waits)
    acted = await driver.act(run_id, approve((await driver.action(run_id, "c1")).id), by="bob")
    match how:
        case "denied":
            await driver.act(run_id, deny("all"), by="bob")
        case "expired":
            await driver.hasten(run_id, "1/c2")
        case "failed":
            acted2 = await driver.act(run_id, approve("all"), by="bob")
            await driver.answer(await driver.claim(acted2.settled.deliveries[0]))
    if how == "cancelled":
        await driver.store.runs.cancel(run_id)
    else:
        await driver.answer(await driver.claim(acted.settled.deliveries[0]))
        step = await talk.lease(run_id)
        await (driver.give_up(step) if how == "failed" else driver.finish(step))
    await check(driver, await talk.ask(await talk.submit("cid")), none_of="ann cid", but="bob")


@pytest.mark.parametrize("how", ["withdrawn", "deleted", "forked before it"])
async def test_an_approval_that_is_gone_approves_nothing(driver: StoreDriver, talk: Talk, how: str) -> None:
    await talk.said_and_done("ann")
    through = (await driver.store.runs.conversation(talk.id or "")).entries
    run_id = await talk.ask(await talk.submit("bob"))
    await talk.paid(run_id, "cid")
    match how:
        case "withdrawn":
            await driver.store.history.withdraw(talk.id or "", through, by="dan")
        case "deleted":
            await driver.store.control.delete_run(run_id)
        case _:
            made, _ = await driver.store.history.fork(talk.id or "", Fork(through=through), by="dan")
            talk.id = made.id
    await check(driver, await talk.ask(await talk.submit("dan")), none_of="ann dan", but="eve")


async def test_a_fork_behind_an_approval_has_it(driver: StoreDriver, talk: Talk) -> None:
    await talk.paid(await talk.ask(await talk.submit("ann", _PAY)), "bob")
    made, _ = await driver.store.history.fork(talk.id or "", Fork(), by="cid")
    fork = Talk(driver, made.id)
    await check(driver, await fork.ask(await fork.submit("bob")), none_of="bob cid", but="ann")


@pytest.fixture
def family(driver: StoreDriver) -> Family:
    return Family(driver.store, driver.redis)


async def _below(family: Family, talk: Talk, by: str, text: str) -> tuple[str, Lease]:
    """A run whose model calls an agent: its id, and the lease of the first step of the child's run."""
    run_id = await talk.submit(by, text, agent=LEAD, agent_by={by})
    (delivery,) = await family.ask_agents(await talk.lease(run_id), "c1")
    called = await family.claim(delivery)
    begun = await family.begin_child(called)
    await family.leave(called)
    return run_id, await family.claim(begun.deliveries[0], "w2")


async def test_who_spoke_in_the_conversation_above(driver: StoreDriver, family: Family, talk: Talk) -> None:
    await talk.said_and_done("ann")
    run_id, child = await _below(family, talk, "bob", "go on")
    await driver.act(run_id, say("quickly"), by="dan")
    await driver.store.steps.settle(child, calls("p1", approval=["p1"], second_person=["p1"]))
    await check(driver, child.run_id, none_of="ann bob dan", but="cid")


async def test_words_without_a_name_in_the_run_above(driver: StoreDriver, family: Family, talk: Talk) -> None:
    run_id, child = await _below(family, talk, "bob", "go on")
    await driver.act(run_id, say("quickly"), by=None)
    await driver.store.steps.settle(child, calls("p1", approval=["p1"], second_person=["p1"]))
    with pytest.raises(StateConflict) as conflict:
        await driver.act(child.run_id, approve("all"), by="cid")
    assert conflict.value.code == "second_person_required"


async def test_who_spoke_into_the_run_below(driver: StoreDriver, family: Family, talk: Talk) -> None:
    run_id, child = await _below(family, talk, "bob", "go on")
    await driver.act(child.run_id, say(_PAY), by="ann")
    (told,) = (await family.end(child)).deliveries
    follow = await family.follow([await family.end(await family.claim(told, "w2"))])
    await family.reply(next(delivery for delivery in follow if delivery.run_id == run_id))
    await check(driver, await talk.ask(run_id), none_of="ann bob", but="cid")


@pytest.mark.parametrize("run", [False, True])
async def test_who_set_a_secret_below(redis: Any, settings: Settings, run: bool) -> None:
    family = Family(Store(redis, with_keys(settings, NEW)), redis)
    talk = Talk(family)
    run_id, child = await _below(family, talk, "bob", "go on")
    if run:
        secret: dict[str, SecretStr | None] = {"ACCOUNT": SecretStr("that of ann")}
        behind = Submission(input="go on", conversation_id=child.conversation_id, secrets=secret)
        await family.store.runs.submit(behind, by="ann")
    else:
        await family.store.vault.keep(child.conversation_id, {"ACCOUNT": "that of ann"}, by="ann")
    # Who seals them anew has set none.
    await family.store.vault.keep(child.conversation_id, {}, by=None)
    follow = await family.follow([await family.end(child)])
    await family.reply(next(delivery for delivery in follow if delivery.run_id == run_id))
    await check(family, await talk.ask(run_id), none_of="ann bob", but="cid")
    await family.store.feeds.close()


async def test_who_spoke_above_what_another_one_retries_below(driver: StoreDriver, family: Family, talk: Talk) -> None:
    await talk.said_and_done("ann")
    _, child = await _below(family, talk, "bob", "go on")
    await driver.give_up(child)
    again = (await driver.store.control.retry(child.run_id, Retry(), by="dan")).run_id
    await check(driver, await talk.ask(again), none_of="ann bob dan", but="cid")


async def test_records_from_before_are_read(driver: StoreDriver, talk: Talk) -> None:
    run_id = await talk.ask(await talk.submit("ann", _PAY))
    await driver.act(run_id, say(_PAY), by="dan")
    await driver.redis.hdel(keys.run(run_id), "voices", "agent_by")
    await driver.redis.hdel(keys.conversation(talk.id or ""), "voices", "agent_by")
    await check(driver, run_id, none_of="ann dan", but="bob")


async def test_with_more_people_than_are_told_apart_no_key_is_a_second_person(driver: StoreDriver, talk: Talk) -> None:
    await talk.said_and_done("bob", "hello")
    many = {f"user-{number}": 1 for number in range(limit_of("voices") - 1)}
    await driver.redis.hset(keys.conversation(talk.id or ""), "voices", orjson.dumps({"bob": 1, **many}))
    await talk.say("ann")
    kept = orjson.loads(await driver.redis.hget(keys.conversation(talk.id or ""), "voices"))
    assert len(kept) == limit_of("voices") + 1
    run_id = await talk.ask(await talk.submit("bob"))
    with pytest.raises(StateConflict):
        await driver.act(run_id, approve("all"), by="cid")
