"""The pages of the admin: who sees runs and acts on them, by Django's permissions."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest

from features.django.tests import project

# isort: split
from django.contrib.auth.models import Permission
from django.core.management import call_command
from django.test import Client, override_settings
from django.urls import reverse

from palaver import AgentSpec, RunStatus
from palaver.contrib.django import admin, ask, submit

pytestmark = pytest.mark.process

AGENT = AgentSpec(model="fake/say-1")
RUNS = "/admin/palaver/listedrun/"


def browser(name: str, *permissions: str, **more: Any) -> Client:
    """A browser in which a user with these permissions is logged in."""
    user = project.user(name, is_staff=True, **more)
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="palaver", codename__in=permissions))
    client = Client(headers={"host": "testserver"})
    client.force_login(user)
    return client


def status_of(user: Any, run_id: str) -> str:
    run = ask(user, lambda palaver: palaver.get(run_id))
    return str(run.status)


def test_who_may_see_runs_sees_those_of_all_and_who_may_change_acts(shop: None) -> None:
    ann = project.user("ann")
    run = submit(ann, "<b>Where</b> is my order?", agent=AGENT)
    page = reverse("admin:palaver_listedrun_change", args=[run.id])
    other, seer = browser("other"), browser("seer", "view_listedrun")
    boss = browser("boss", "view_listedrun", "change_listedrun")
    for path in (RUNS, page):
        assert other.get(path).status_code == 403
        assert Client(headers={"host": "testserver"}).get(path).status_code == 302, "to the login"
    listed = seer.get(RUNS).content.decode()
    assert run.id in listed
    assert "&lt;b&gt;Where" in listed
    assert "<b>Where" not in listed
    shown = seer.get(page).content.decode()
    assert f"user:{ann.pk}" in shown
    assert "&lt;b&gt;Where" in shown
    assert 'value="cancel"' not in shown
    assert seer.post(page, {"act": "cancel"}).status_code == 403
    assert status_of(ann, run.id) == RunStatus.QUEUED
    assert 'value="cancel"' in boss.get(page).content.decode()
    assert boss.post(page, {"act": "erase"}).status_code == 405
    done = boss.post(page, {"act": "cancel"}, follow=True)
    assert "the run is cancelled" in done.content.decode()
    assert status_of(ann, run.id) == RunStatus.CANCELLED
    assert 'value="retry"' in done.content.decode()
    assert f"user:{project.user('boss').pk}" in [each.get("by") for each in ask(ann, _events_of(run.id))]


def _events_of(run_id: str) -> Any:
    async def read(palaver: Any) -> list[Any]:
        headers = {"accept": "application/json"}
        answer = await palaver._transport._http.get(f"/v1/runs/{run_id}/events", headers=headers)
        return list(answer.json()["data"])

    return read


def test_the_list_has_statuses_and_pages(shop: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "_PAGE", 3)
    seer, many = browser("seer", "view_listedrun"), project.user("many")
    ids = [submit(many, f"number {number}", agent=AGENT).id for number in range(5)]
    first = seer.get(RUNS, {"status": "queued"})
    assert [run.id for run in first.context["runs"]] == ids[:1:-1]
    following = seer.get(RUNS, {"status": "queued", "before": first.context["more"].isoformat()})
    assert [run.id for run in following.context["runs"]][:2] == ids[1::-1]
    assert seer.get(RUNS, {"status": "completed"}).context["runs"] == []
    for wrong in ({"status": "lost"}, {"before": "yesterday"}):
        assert seer.get(RUNS, wrong).status_code == 404
    assert seer.get(f"{RUNS}run_00000000/change/").status_code == 404
    assert seer.get(f"{RUNS}add/").status_code == 403


def test_an_act_that_is_refused_is_said(shop: None) -> None:
    boss, ann = browser("boss", "view_listedrun", "change_listedrun"), project.user("ann")
    run = submit(ann, "hello", agent=AGENT)
    page = reverse("admin:palaver_listedrun_change", args=[run.id])
    done = boss.post(page, {"act": "retry"}, follow=True)
    assert 'class="error"' in done.content.decode()
    done = boss.post(page, {"act": "approve", "action": "act_1", "digest": "0" * 64}, follow=True)
    assert 'class="error"' in done.content.decode()


def test_a_user_has_one_name_in_all_that_it_does(shop: None) -> None:
    """Or else it could decide as a second person what it has begun itself."""
    with override_settings(PALAVER={"IDENTITY": "features.django.tests.site.by_name"}):
        client = browser("ann", "view_listedrun", "change_listedrun")
        run = submit(project.user("ann"), "hello", agent=AGENT)
        client.post(reverse("admin:palaver_listedrun_change", args=[run.id]), {"act": "cancel"})
        told = ask(project.user("ann"), _events_of(run.id))
    assert {each["by"] for each in told if "by" in each} == {"user:ann"}


def test_there_is_no_table_and_nothing_of_django_asks_for_one(shop: None) -> None:
    boss = browser("boss", "view_listedrun", "change_listedrun", is_superuser=True)
    for page in ("history", "delete"):
        assert boss.get(f"{RUNS}run_1/{page}/").status_code in (302, 403)
    said = StringIO()
    call_command("dumpdata", "palaver", stdout=said)
    assert said.getvalue().strip() == "[]"
    assert boss.get("/admin/").status_code == 200
