"""Attempts at receivers that answer late, never, wrongly, or with too much: each ends in time, in a word, and holds
nobody else."""

from __future__ import annotations

import asyncio
import random
import re
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from standardwebhooks import Webhook

from features.offboarding.erasures import Erasures
from features.webhooks import webhook_keys
from features.webhooks.addresses import webhook_fault
from features.webhooks.bodies import WebhookChange
from features.webhooks.contract import AttemptOutcome
from features.webhooks.deliverer import Deliverer, keep_file
from features.webhooks.deliveries import Deliveries, DeliveryLease
from features.webhooks.delivering import loops
from features.webhooks.delivery_records import DeliveryRecord
from features.webhooks.messages import body_of, headers_of
from features.webhooks.outcomes import ReceiverAnswer, judge
from features.webhooks.sending import Sender
from features.webhooks.terms import ALL_EVENT_TYPES, DELAYS, OPENAI_TYPES, TYPE_OF_STATUS
from features.webhooks.tests.unit.receiver import Act, Received, Writer, answer, receiving, take
from features.webhooks.webhook_file import load_webhooks
from features.webhooks.webhooks import Webhooks
from palaver.config.settings import Settings
from palaver.errors import ConfigurationError, Refused
from palaver.feature import told_events
from palaver.processes.tasks import end
from palaver.store import Store
from palaver.vocabulary.lifecycle import RunStatus
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.webhooks import EVENT_TYPES
from tests.contract.store_driver import StoreDriver
from tests.store_server import Database
from tests.unit.api_world import SETTINGS
from tests.waiting import aeventually
from workers.connections.lookup_threads import LookupThreads

TIMEOUT = 0.4
"""Seconds for a receiver that never ends."""
PATIENT = 10.0
"""Seconds for others, on a machine that has much to do."""
HERE = ("127.0.0.1",)


async def never(_: Received, writer: Writer) -> None:
    """Not a byte."""
    await asyncio.sleep(30)


async def slow_head(_: Received, writer: Writer) -> None:
    """A byte of a header at a time."""
    writer.write(b"HTTP/1.1 200 OK\r\nX-")
    while True:
        writer.write(b"a")
        await writer.drain()
        await asyncio.sleep(0.02)


async def no_end(_: Received, writer: Writer) -> None:
    """A gigabyte."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def slow_body(_: Received, writer: Writer) -> None:
    """It was taken, and the answer has no end."""
    writer.write(b"HTTP/1.1 202 OK\r\nContent-Length: 100\r\n\r\nta")
    await writer.drain()
    await asyncio.sleep(30)


async def many_headers(_: Received, writer: Writer) -> None:
    """Headers without end."""
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-A: " + b"a" * 9000 + b"\r\n")
        await writer.drain()


async def junk(_: Received, writer: Writer) -> None:
    """No HTTP."""
    writer.write(b"SSH-2.0-x\r\n\r\n")
    await writer.drain()


async def hang_up(_: Received, writer: Writer) -> None:
    """Nothing, and the end."""


def say(status: int, body: bytes = b"", **headers: str) -> Act:
    """Answer so."""

    async def act(_: Received, writer: Writer) -> None:
        writer.write(answer(status, body, **headers))
        await writer.drain()

    return act


@pytest.mark.parametrize(
    ("act", "status", "error", "text"),
    [
        (take, 204, None, ""),
        (never, None, "timeout", ""),
        (slow_head, None, "timeout", ""),
        (no_end, 200, None, "x" * limit_of("webhook_answer")),
        (slow_body, 202, None, ""),
        (many_headers, None, "protocol_error", ""),
        (junk, None, "protocol_error", ""),
        (hang_up, None, "connection", ""),
        (say(500, b"oops"), 500, None, "oops"),
        (say(302, location="http://127.0.0.1/elsewhere"), 302, "redirect", ""),
        (say(200, b"\xff\x00" + b"y" * 5000), 200, None, "\ufffd\x00" + "y" * (limit_of("webhook_answer") - 2)),
    ],
)  # fmt: skip
async def test_an_attempt_ends_whatever_the_receiver_does(
    act: Act, status: int | None, error: str | None, text: str
) -> None:
    sender = Sender(HERE, timeout=TIMEOUT if act in (never, slow_head, slow_body) else PATIENT)
    try:
        async with receiving(act) as receiver:
            found = await asyncio.wait_for(sender.send(receiver.url, {}, b"{}", trusted=True), PATIENT)
            assert (found.status, found.error, found.text) == (status, error, text)
            assert len(receiver.received) == 1
    finally:
        await sender.close()


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/hook", "http://localhost:{port}/hook", "http://2130706433:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/", "http://169.254.169.254/", "http://[fd00:ec2::254]/", "ftp://example.org/",
        "http://user:pass@example.org/", "https://example.org:8443/", "http://metadata.internal/",
    ],
)  # fmt: skip
async def test_an_address_within_is_not_asked(url: str) -> None:
    sender = Sender((), timeout=TIMEOUT)
    try:
        async with receiving() as receiver:
            found = await sender.send(url.format(port=receiver.port), {}, b"{}", trusted=False)
            assert (found.status, found.error) == (None, "address_not_allowed")
            assert not receiver.received
    finally:
        await sender.close()


@pytest.mark.parametrize(
    "url", ["https://example.org:x/", "https://example.org/\x7f", "https://[::1/", "https://a..b/"]
)
async def test_an_address_that_cannot_be_read_ends_the_attempt(url: str) -> None:
    assert webhook_fault(url, ()) is not None
    sender = Sender((), timeout=TIMEOUT)
    try:
        found = [await sender.send(url, {}, b"{}", trusted=trusted) for trusted in (False, True)]
    finally:
        await sender.close()
    assert [each.status for each in found] == [None, None]
    assert found[0].error == "address_not_allowed"
    if url != "https://a..b/":
        assert found[1].error == "protocol_error"


async def test_a_name_that_leads_within_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked up for the attempt, and what was looked up is what is connected to."""

    async def resolve(self: Any, host: str, port: int = 0, family: Any = 0) -> list[dict[str, Any]]:
        return [{"hostname": host, "host": "10.0.0.7", "port": port, "family": 2, "proto": 0, "flags": 0}]

    monkeypatch.setattr(LookupThreads, "resolve", resolve)
    sender = Sender((), timeout=TIMEOUT)
    try:
        found = await sender.send("https://example.org/hook", {}, b"{}", trusted=False)
        assert (found.status, found.error) == (None, "address_not_allowed")
    finally:
        await sender.close()


async def test_a_host_that_is_listed_is_asked() -> None:
    async with receiving() as receiver:
        sender = Sender((f"127.0.0.1:{receiver.port}",), timeout=PATIENT)
        found = await sender.send(receiver.url, {"a": "b"}, b"{}", trusted=False)
        assert found.status == 204
        assert receiver.received[0].headers["a"] == "b"
        await sender.close()


def test_what_an_answer_means() -> None:
    chance = random.Random(1)
    assert judge(ReceiverAnswer(204), 0, chance).outcome is AttemptOutcome.DELIVERED
    assert judge(ReceiverAnswer(302, "redirect"), 0, chance).outcome is AttemptOutcome.AGAIN
    assert judge(ReceiverAnswer(410), 0, chance).outcome is AttemptOutcome.GONE
    assert judge(ReceiverAnswer(None, "timeout"), len(DELAYS), chance).outcome is AttemptOutcome.FAILED
    for tries, delay in enumerate(DELAYS):
        found = [judge(ReceiverAnswer(500, retry_after=9.0), tries, chance) for _ in range(20)]
        assert {each.outcome for each in found} == {AttemptOutcome.AGAIN}
        assert all(0.9 * delay <= each.again_in <= 1.1 * delay and not each.rests for each in found)
        assert len({each.again_in for each in found}) > 10
    assert judge(ReceiverAnswer(503, retry_after=60.0), 0, chance).again_in == 60.0
    patient = judge(ReceiverAnswer(429, retry_after=1e9), 0, chance)
    assert (patient.again_in, patient.rests) == (86_400.0, 86_400.0)
    assert judge(ReceiverAnswer(429, retry_after=1.0), 8, chance).again_in > 70_000


def test_each_end_of_a_run_has_a_type() -> None:
    assert TYPE_OF_STATUS.keys() == {status for status in RunStatus if status.terminal}
    assert {*TYPE_OF_STATUS.values(), "run.action_required", "webhook.disabled"} == {*EVENT_TYPES}
    assert (*EVENT_TYPES, *told_events()) == ALL_EVENT_TYPES
    assert set(OPENAI_TYPES) == {*TYPE_OF_STATUS.values()}


RECORD = DeliveryRecord(
    "msg_00abc_7", "run.succeeded", 1_700_000_000_123, "pending", 0, {"run_id": "run_00abc", "sequence": 7}, ()
)


def test_signatures_are_those_of_the_standard() -> None:
    now, body = int(time.time()), body_of(RECORD, "palaver")
    secrets = ["whsec_" + "A" * 43 + "=", "whsec_" + "B" * 43 + "="]
    signing = [Webhook(secret)._whsecret for secret in secrets]
    headers = headers_of(RECORD, body, now, signing)
    for secret in secrets:
        assert Webhook(secret).verify(body, headers)["data"] == RECORD.data
    with pytest.raises(Exception, match="signature"):
        Webhook(secrets[0]).verify(body + b" ", headers)
    assert headers["webhook-signature"].split(" ")[0] == Webhook(secrets[0]).sign(
        RECORD.id, datetime.fromtimestamp(now, UTC), body.decode()
    )


def test_openai_s_client_reads_its_own_form() -> None:
    from openai import OpenAI

    secret = "whsec_" + "A" * 43 + "="
    for event_type, theirs in OPENAI_TYPES.items():
        record = DeliveryRecord("msg_00abc_7", event_type, 1_700_000_000_123, "pending", 0, {"run_id": "run_00abc"}, ())
        body = body_of(record, "openai")
        headers = headers_of(record, body, int(time.time()), [Webhook(secret)._whsecret])
        event: Any = OpenAI(api_key="x", webhook_secret=secret).webhooks.unwrap(body.decode(), headers)
        assert (event.type, event.data.id, event.id) == (theirs, "resp_00abc", "evt_00abc_7")


@asynccontextmanager
async def delivering(
    *, at_work: bool = True, patience: float = PATIENT
) -> AsyncIterator[tuple[StoreDriver, Store, Deliverer]]:
    """A worker that delivers, or would, and a store."""
    redis: Any = Database().client()
    store = Store(redis, SETTINGS)
    deliverer = Deliverer(store, SETTINGS, Sender((), timeout=patience))
    task = asyncio.create_task(deliverer.run() if at_work else asyncio.sleep(0))
    try:
        yield StoreDriver(store, redis), store, deliverer
    finally:
        await end(task)
        await deliverer._sender.close()
        await store.feeds.close()
        await redis.aclose()


async def ends(driver: StoreDriver, number: int = 1) -> list[str]:
    """So many runs end."""
    ids = []
    for _ in range(number):
        run_id, lease = await driver.begin()
        await driver.finish(lease)
        ids.append(run_id)
    return ids


async def test_a_receiver_gets_each_event_once_and_signed() -> None:
    async with receiving() as receiver, delivering() as (driver, store, deliverer):
        deliverer._sender._hosts = (f"127.0.0.1:{receiver.port}",)
        made = await store.part(Webhooks).create("", receiver.url)
        ids = await ends(driver, 5)
        await aeventually(lambda: len(receiver.received) == 5)
        webhook = Webhook(made.secret)
        events = [webhook.verify(each.body, dict(each.headers)) for each in receiver.received]
        assert [event["data"]["run_id"] for event in events] == ids
        assert {event["type"] for event in events} == {"run.succeeded"}
        assert receiver.most_at_once == 1
        assert len({each.headers["webhook-id"] for each in receiver.received}) == 5

        async def done() -> bool:
            return (await store.part(Webhooks).get(made.webhook.id)).delivered == 5

        await aeventually(done)
        rotated = await store.part(Webhooks).rotate(made.webhook.id)
        await ends(driver)
        await aeventually(lambda: len(receiver.received) == 6)
        for secret in (made.secret, rotated.secret):
            Webhook(secret).verify(receiver.received[-1].body, dict(receiver.received[-1].headers))


@pytest.mark.slow
async def test_a_slow_receiver_holds_nobody() -> None:
    """It has one attempt at a time, and its turn comes again; others get theirs meanwhile. One that is gone is off."""
    async with receiving(never) as slow, receiving(say(410)) as gone, receiving() as quick, delivering(patience=3) as (
        driver, store, deliverer,
    ):  # fmt: skip
        deliverer._sender._hosts = tuple(f"127.0.0.1:{each.port}" for each in (slow, gone, quick))
        ids = [(await store.part(Webhooks).create("", each.url)).webhook.id for each in (slow, gone, quick)]
        await ends(driver, 8)
        await aeventually(lambda: len(quick.received) >= 8)

        async def said() -> bool:
            kinds = [orjson.loads(each.body)["type"] for each in quick.received]
            return "webhook.disabled" in kinds

        await aeventually(said)
        assert slow.most_at_once == 1
        assert len(gone.received) == 1
        assert [(await store.part(Webhooks).get(each)).off_because for each in ids] == [None, "gone", None]

        async def tried() -> bool:
            page = await store.part(Deliveries).page(ids[0], state="pending", limit=50, cursor=None)
            return any(each.attempts and each.attempts[0].error == "timeout" for each in page.data)

        await aeventually(tried)


async def test_a_worker_without_the_key_leaves_it_to_others() -> None:
    async with receiving() as receiver, delivering() as (driver, store, _):
        bare = Settings(redis_url="redis://127.0.0.1:1/0", shards=1, webhook_hosts=(f"127.0.0.1:{receiver.port}",))
        unable = Deliverer(Store(driver.redis, bare), bare)
        made = await store.part(Webhooks).create("", receiver.url)
        record = DeliveryRecord("msg_1", "run.failed", 1, "pending", 0, {"run_id": "run_1"}, ())
        (config,) = await store.part(Webhooks).configs("")
        assert not await unable._attempt(DeliveryLease(config, 1, record))
        assert not receiver.received
        assert made.webhook.id in unable._unable
        await unable._sender.close()


SECRET = "whsec_" + "C" * 43 + "="


def written(path: Path, text: str) -> Path:
    """A file with that text."""
    file = path / "webhooks.toml"
    file.write_text(text)
    return file


async def test_webhooks_of_the_operator_s_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are trusted, signed with what the environment has, and gone when they are not in the file any more."""
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    async with receiving() as receiver, delivering(at_work=False) as (driver, store, without):
        path = written(tmp_path, f'[webhooks.ops]\nurl = "{receiver.url}"\nsecret_env = "HOOK_SECRET"\n')
        file = load_webhooks(path)
        assert file is not None
        for _ in range(2):
            await keep_file(store, file)
        (webhook,) = await store.part(Webhooks).list("")
        assert webhook.of_file
        with pytest.raises(Refused, match="webhook_of_file"):
            await store.part(Webhooks).remove(webhook.id)
        await driver.redis.hset(webhook_keys.of_webhook(webhook.id).hook, "off", "gone")
        for change in ({"enabled": False}, {"enabled": True, "types": ("run.failed",)}):
            with pytest.raises(Refused, match="webhook_of_file"):
                await store.part(Webhooks).change(webhook.id, WebhookChange.model_validate(change))
        assert (await store.part(Webhooks).change(webhook.id, WebhookChange(enabled=True))).enabled, (
            "given up by its receiver"
        )
        await ends(driver)
        await store.part(Deliveries).take_events("00")
        lease = await store.part(Deliveries).claim(webhook.id)
        assert lease is not None
        assert not await without._attempt(lease), "it leaves it to who has the file"
        assert not receiver.received
        await driver.redis.hdel(webhook_keys.of_webhook(webhook.id).hook, "opens_at")
        again = await store.part(Deliveries).claim(webhook.id)
        assert again is not None
        assert await Deliverer(store, SETTINGS, without._sender, file=file)._attempt(again)
        Webhook(SECRET).verify(receiver.received[0].body, dict(receiver.received[0].headers))
        await keep_file(store, {})
        assert not await store.part(Webhooks).list("")


async def test_a_file_that_is_empty_by_now_removes_its_last_webhook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    table = '[webhooks.ops]\nurl = "https://a.example"\nsecret_env = "HOOK_SECRET"\n'
    async with delivering(at_work=False) as (_, store, _):
        bare = Settings(redis_url="redis://127.0.0.1:1/0", shards=1)
        assert loops(bare, store, "") == [], "without a file those of one are left alone"
        for text, number in ((table, 1), ("", 0)):
            (loop,) = loops(bare.model_copy(update={"webhooks": written(tmp_path, text)}), store, "")
            task = asyncio.create_task(loop())

            async def kept(number: int = number) -> bool:
                return len(await store.part(Webhooks).list("")) == number

            await aeventually(kept)
            await end(task)


@pytest.mark.slow
async def test_a_webhook_with_much_to_send_does_not_keep_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("features.webhooks.deliverer._PLACES", 1)
    monkeypatch.setattr("features.webhooks.deliverer._TURN", 0.0)
    received: list[str] = []

    def noting(name: str) -> Act:
        async def note(asked: Received, writer: Writer) -> None:
            received.append(name)
            await take(asked, writer)

        return note

    async with receiving(noting("busy")) as busy, receiving(noting("other")) as other, delivering(at_work=False) as (
        driver, store, deliverer,
    ):  # fmt: skip
        deliverer._sender._hosts = tuple(f"127.0.0.1:{each.port}" for each in (busy, other))
        made = await store.part(Webhooks).create("", busy.url)
        await ends(driver, 5)
        await store.part(Deliveries).take_events("00")
        await store.part(Webhooks).create("", other.url)
        await ends(driver)
        await store.part(Deliveries).take_events("00")
        task = asyncio.create_task(deliverer.run())
        await aeventually(lambda: len(received) == 7)
        await end(task)
        assert received.index("other") == 1, "it has waited for longer"
        assert (await store.part(Webhooks).get(made.webhook.id)).delivered >= 5


async def test_those_that_are_left_to_others_stand_in_nobodys_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("features.webhooks.deliverer._LOOKED", 1)
    async with receiving() as receiver, delivering(at_work=False) as (driver, store, deliverer):
        deliverer._sender._hosts = (f"127.0.0.1:{receiver.port}",)
        ids = [(await store.part(Webhooks).create("", receiver.url)).webhook.id for _ in range(3)]
        await ends(driver)
        await store.part(Deliveries).take_events("00")

        async def due() -> list[str]:
            found = await store.part(Deliveries).due(3)
            return found if len(found) == 3 else []

        # A delivery is due in the millisecond after the one that it was made in.
        in_order = await aeventually(due)
        assert sorted(in_order) == sorted(ids)
        deliverer._unable = dict.fromkeys(in_order[:2], float("inf"))
        assert await deliverer.look()
        assert [*deliverer._busy] == in_order[2:]
        await end(*deliverer._busy.values())
        deliverer._unable = dict.fromkeys(in_order, 0.0)
        await deliverer.look()
        assert deliverer._unable == {}, "their time is over"
        await end(*deliverer._busy.values())


async def test_a_server_of_names_that_never_answers_holds_up_no_other_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """More names than the loop has threads, each a host of a webhook; and one whose address is known at once."""
    known, over, asked = socket.getaddrinfo, threading.Event(), set[str]()

    def getaddrinfo(host: Any, *rest: Any, **options: Any) -> Any:
        if str(host).endswith(".slow.example"):
            asked.add(host)
            over.wait()
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        return known("127.0.0.1" if host == "quick.example" else host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    async with receiving() as receiver:
        sender = Sender((f"quick.example:{receiver.port}",), timeout=PATIENT)
        hosts = [f"h{n}.slow.example" for n in range(40)]
        slow = [
            asyncio.create_task(sender.send(f"https://{host}/", {}, b"{}", trusted=n % 2 == 0))
            for n, host in enumerate(hosts)
        ]
        try:
            await aeventually(lambda: asked == {*hosts})
            loop = asyncio.get_running_loop()
            assert await asyncio.wait_for(loop.getaddrinfo("localhost", 80), PATIENT), "others of this process"
            monkeypatch.setattr("workers.connections.guarded_resolver.never_asked", lambda *_, **__: False)
            url = f"http://quick.example:{receiver.port}/"
            assert (await sender.send(url, {}, b"{}", trusted=False)).status == 204
        finally:
            over.set()
        assert {(await each).error for each in slow} == {"unknown_host"}
        await sender.close()


async def test_a_host_that_is_looked_up_in_vain_leaves_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(host: str, *_: Any, **__: Any) -> Any:
        raise UnicodeError if host == "junk" else socket.gaierror(socket.EAI_NONAME, "no such name")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    names = LookupThreads(1)
    for host in ("none.example", "junk", "none.example"):
        with pytest.raises(OSError, match="name"):
            await asyncio.wait_for(names.resolve(host), PATIENT)


async def test_one_of_the_file_that_cannot_be_kept_stops_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    table = '[webhooks.{}]\nurl = "https://a.example"\nsecret_env = "HOOK_SECRET"\ntenant = "{}"\n'
    tables = [table.format(f"n{place}", name) for place, name in enumerate(("nobody", "erased", "acme"))]
    file = load_webhooks(written(tmp_path, "".join(tables)))
    assert file is not None
    async with delivering(at_work=False) as (_, store, _):
        for name in ("erased", "acme"):
            await store.tenants.create(name)
        erased, acme = await store.tenants.get("erased"), await store.tenants.get("acme")
        assert erased is not None
        assert acme is not None
        await store.part(Erasures).erase("erased")
        await keep_file(store, file)
        assert len(await store.part(Webhooks).list(acme.tag)) == 1
        assert not await store.part(Webhooks).list(erased.tag)
    assert "[webhooks.n0] is left out: there is no tenant 'nobody'" in caplog.text
    assert "[webhooks.n1] " in caplog.text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[webhooks.x]\nurl = 'https://a.example'\n", "secret_env"),
        ("[webhooks.x]\nurl = 'https://a.example'\nsecret_env = 'NONE_SUCH'\n", "NONE_SUCH is not whsec_"),
        ("[webhooks.x]\nurl = 'ftp://a.example'\nsecret_env = 'HOOK_SECRET'\n", "url must begin"),
        ("[webhooks.x]\nurl = 'https://a'\nsecret_env = 'HOOK_SECRET'\ntypes = ['x']\n", "types"),
        ("[webhooks.X]\nurl = 'https://a'\nsecret_env = 'HOOK_SECRET'\n", "webhooks"),
        ("[hooks]\n", "is no key here"),
        ("[webhooks.x]\n", "has either url or task"),
        ("[webhooks.x]\nurl = 'https://a'\ntask = 'a.b'\nsecret_env = 'HOOK_SECRET'\n", "has either url or task"),
        ("[webhooks.x]\ntask = 'shop.ended'\n", "needs broker_env"),
        ("[webhooks.x]\ntask = 'shop.ended'\nbroker_env = 'NONE_SUCH'\n", "NONE_SUCH has no address of a broker"),
        ("[webhooks.x]\ntask = 'two words'\nbroker_env = 'HOOK_SECRET'\n", "task"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used(tmp_path: Path, text: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    with pytest.raises(ConfigurationError, match=re.escape(why)):
        load_webhooks(written(tmp_path, text))
