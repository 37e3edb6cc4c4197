"""Events of webhooks become signals: once they are signed, and again if a receiver raises."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest
from standardwebhooks import Webhook

from features.django.tests import project as project

# isort: split
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.test import RequestFactory, override_settings

from palaver.contrib.django import action_required, run_ended, tasks, views

OLD, NEW = "whsec_b2xkIHNlY3JldCBvZiB0ZXN0cw==", "whsec_bmV3IHNlY3JldCBvZiB0ZXN0cw=="
DATA = {"run_id": "run_1", "conversation_id": "conv_1", "status": "completed"}


@pytest.fixture
def heard() -> Iterator[list[tuple[str, Any]]]:
    told: list[tuple[str, Any]] = []

    def ended(sender: Any, run_id: str, status: str, event: Any, **more: Any) -> None:
        if run_id == "run_broken":
            raise ValueError("a receiver is broken")
        told.append(("ended", (run_id, status, event["type"])))

    def waits(sender: Any, run_id: str, event: Any, **more: Any) -> None:
        told.append(("waits", event["data"]["action"]["id"]))

    run_ended.connect(ended)
    action_required.connect(waits)
    yield told
    run_ended.disconnect(ended)
    action_required.disconnect(waits)


def post(
    event: Any, secret: str, *, at: float | None = None, changed: Mapping[str, str] = MappingProxyType({})
) -> HttpResponse:
    body, now = json.dumps(event), datetime.fromtimestamp(at or time.time(), UTC)
    signature = Webhook(secret).sign("msg_1", now, body)
    headers = {"webhook-id": "msg_1", "webhook-timestamp": str(int(now.timestamp())), "webhook-signature": signature}
    request = RequestFactory().post("/told", body, content_type="application/json", headers={**headers, **changed})
    answer: HttpResponse = views.told(request)
    return answer


@override_settings(PALAVER={"TOLD_SECRET": [NEW, OLD]})
def test_what_is_signed_is_told(heard: list[Any]) -> None:
    for secret in (OLD, NEW):
        assert post({"type": "run.succeeded", "data": DATA}, secret).status_code == 204
    waits = {"type": "run.action_required", "data": {**DATA, "action": {"id": "act_1"}}}
    assert post(waits, NEW).status_code == 204
    assert post({"type": "webhook.disabled", "data": {}}, NEW).status_code == 204
    ended = ("ended", ("run_1", "completed", "run.succeeded"))
    assert heard == [ended, ended, ("waits", "act_1")]


@override_settings(PALAVER={"TOLD_SECRET": NEW})
def test_what_is_not_signed_is_refused(heard: list[Any]) -> None:
    event = {"type": "run.succeeded", "data": DATA}
    assert post(event, NEW).status_code == 204
    del heard[:]
    refused = [
        post(event, OLD),
        post(event, NEW, at=time.time() - 400),
        post(event, NEW, changed={"webhook-id": "msg_2"}),
        post(event, NEW, changed={"webhook-signature": ""}),
        post(event, NEW, changed={"webhook-timestamp": "soon"}),
        post(event, NEW, changed={"webhook-timestamp": "9" * 5000}),
    ]
    assert [answer.status_code for answer in refused] == [401] * len(refused)
    answer = views.told(RequestFactory().get("/told"))
    assert answer.status_code == 405
    assert heard == []
    for nothing in (None, "", "whsec_", "no secret", 5):
        with override_settings(PALAVER={"TOLD_SECRET": nothing}), pytest.raises(ImproperlyConfigured, match="whsec_"):
            post(event, NEW)


@override_settings(PALAVER={"TOLD_SECRET": NEW})
def test_what_a_receiver_raises_has_it_sent_again(heard: list[Any]) -> None:
    broken = {"type": "run.failed", "data": {**DATA, "run_id": "run_broken"}}
    with pytest.raises(ValueError, match="a receiver is broken"):
        post(broken, NEW)
    with pytest.raises(ValueError, match="a receiver is broken"):
        tasks.told(broken)
    tasks.told({"type": "run.expired", "data": {**DATA, "status": "expired"}})
    assert heard == [("ended", ("run_1", "expired", "run.expired"))]
    assert tasks.told.name == "palaver.contrib.django.tasks.told"
