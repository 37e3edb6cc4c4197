"""Runs that are submitted with a transaction: none of what is rolled back, each of what is committed."""

from __future__ import annotations

import random
from typing import Any

import pytest

from features.django.tests import project

# isort: split
from django.core.exceptions import PermissionDenied, SynchronousOnlyOperation
from django.db import transaction
from django.test import override_settings

from palaver import AgentSpec, NotFound, Run, Unprocessable
from palaver.contrib.django import ask, submit, submit_on_commit, token_for

pytestmark = pytest.mark.process

AGENT = AgentSpec(model="fake/say-1")


class Undone(Exception):
    """Rolls a transaction back."""


async def _listed(palaver: Any) -> list[Run]:
    return [run async for run in palaver.list()]


def runs_of(user: Any) -> list[Run]:
    found: list[Run] = ask(user, _listed)
    return found


def test_a_run_is_of_its_user_and_of_no_other(shop: None) -> None:
    ann, bob = project.user("ann"), project.user("bob")
    run = submit(ann, "hello", agent=AGENT)
    assert run.submitted_by == f"user:{ann.pk}"
    assert [each.id for each in runs_of(ann)] == [run.id]
    assert runs_of(bob) == []
    with pytest.raises(NotFound):
        ask(bob, lambda palaver: palaver.get(run.id))
    assert ask(bob, lambda palaver: palaver.get(run.id), operator=True).id == run.id


def test_none_of_what_is_rolled_back_and_each_of_what_is_committed(shop: None) -> None:
    chance, ann = random.Random(47), project.user("committing")
    kept, undone = [], []
    for number in range(40):
        inner, inner_ends, outer_ends = [], chance.random() < 0.5, chance.random() < 0.5
        try:
            with transaction.atomic():
                outer = submit_on_commit(ann, f"outer {number}", agent=AGENT)
                for depth in range(chance.randrange(3)):
                    try:
                        with transaction.atomic():
                            inner.append(submit_on_commit(ann, f"inner {number} {depth}", agent=AGENT))
                            if inner_ends:
                                raise Undone
                    except Undone:
                        undone.append(inner.pop())
                assert outer.run is None
                if outer_ends:
                    raise Undone
        except Undone:
            undone += [outer, *inner]
        else:
            kept += [outer, *inner]
    assert len(kept) > 10
    assert len(undone) > 10
    assert {each.run and each.run.id for each in kept} == {run.id for run in runs_of(ann)}
    assert [each.run for each in undone] == [None] * len(undone)
    assert len({each.run and each.run.id for each in kept}) == len(kept)


def test_the_conversation_is_known_ahead_and_twice_is_once(shop: None) -> None:
    ann = project.user("ahead")
    with transaction.atomic():
        ahead = submit_on_commit(ann, "hello", agent=AGENT)
        name = ahead.conversation_id
    assert ahead.run is not None
    assert ahead.conversation_id == ahead.run.conversation_id != name
    assert token_for(ann, name).conversation == ahead.conversation_id
    assert ask(ann, lambda palaver: palaver.create_conversation(id=name)).id == ahead.conversation_id
    key = ahead.idempotency_key
    again = submit(ann, "hello", agent=AGENT, conversation_id=name, idempotency_key=key)
    assert again.id == ahead.run.id
    following = submit_on_commit(ann, "and then?", conversation_id=ahead.conversation_id)
    assert following.run is not None, "without a transaction it is submitted at once"
    assert following.run.conversation_id == ahead.run.conversation_id


def test_what_cannot_be_submitted_is_raised_behind_the_commit(shop: None, caplog: pytest.LogCaptureFixture) -> None:
    from django.contrib.auth.models import User

    ann = project.user("failing")

    @transaction.atomic
    def signed_up() -> None:
        User.objects.create(username="stays")
        submit_on_commit(ann, "hello", agent="unheard-of")

    with pytest.raises(Unprocessable, match="not on the server"):
        signed_up()
    assert User.objects.filter(username="stays").exists()
    with transaction.atomic():
        logged = submit_on_commit(ann, "hello", agent="unheard-of", robust=True)
    assert logged.run is None
    assert "not on the server" in caplog.text
    with pytest.raises(TypeError, match="colour"):
        submit_on_commit(ann, "hello", colour="red")


def test_who_is_no_caller_and_what_would_block_a_loop(shop: None) -> None:
    away = project.user("away", is_active=False)
    with pytest.raises(PermissionDenied):
        submit(away, "hello", agent=AGENT)
    with override_settings(PALAVER={"IDENTITY": "features.django.tests.site.by_name"}):
        assert submit(project.user("eve"), "hello", agent=AGENT).submitted_by == "user:eve"
        with pytest.raises(PermissionDenied):
            submit(project.user("1st"), "hello", agent=AGENT)


async def test_it_blocks_no_loop() -> None:
    with pytest.raises(SynchronousOnlyOperation):
        submit(object(), "hello")


def test_a_token_is_for_one_conversation_of_the_user(shop: None) -> None:
    ann, bob = project.user("ann"), project.user("bob")
    run = submit(ann, "hello", agent=AGENT)
    token = token_for(ann, run.conversation_id)
    assert token.conversation == run.conversation_id
    with pytest.raises(NotFound):
        token_for(bob, run.conversation_id)
