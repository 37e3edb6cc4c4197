"""Mutants of what goes to the broker: each breaks one promise of ADR 0002, and the test that is named must say so."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import Change, TestedMutant, by_name

_EVENTS: Final = "workers/broker/event_batcher.py"
_PUBLISHER: Final = "palaver/delivery/publishing.py"
_LISTS: Final = "palaver/store/fleet/queue_lists.py"
_SENDING: Final = "palaver/store/scripting/lua/_publish.lua"
_SETTINGS: Final = "palaver/config/settings.py"
_PUBLISHING: Final = "tests/contract/test_publishing.py"
_OF_SCRIPTS: Final = "tests/contract/test_sending.py"
_TESTS: Final = {
    _EVENTS: "tests/unit/test_event_batcher.py",
    _PUBLISHER: _PUBLISHING,
    _LISTS: _PUBLISHING,
    _SENDING: _OF_SCRIPTS,
    _SETTINGS: _OF_SCRIPTS,
}


def _mutant(name: str, file: str, old: str, new: str) -> TestedMutant:
    return TestedMutant(name, _TESTS[file], Change(file, old, new))


MUTANTS: Final = by_name(
    _mutant(
        "events that are lost at a drain",
        _EVENTS,
        "            consumer.event_dispatcher.flush()",
        "            pass",
    ),
    _mutant(
        "events that are lost with a connection",
        _EVENTS,
        "_group_buffer[group] += events",
        "_group_buffer[group] += ()",
    ),
    _mutant(
        "events that wait for a timer that is gone",
        _EVENTS,
        "self._timer is None or self._timer.canceled",
        "self._timer is None",
    ),
    _mutant(
        "events that gather without a bound",
        _EVENTS,
        "send_soon, _TOGETHER",
        "send_soon, 1_000_000",
    ),
    _mutant(
        "a delivery that is left out of those sent together",
        _PUBLISHER,
        "await self._broker.send(batch)",
        "await self._broker.send(batch[:-1] or batch)",
    ),
    _mutant(
        "deliveries of which the last is first",
        _PUBLISHER,
        "self._waiting.popleft()",
        "self._waiting.pop()",
    ),
    _mutant(
        "a publisher that closes on what was handed over",
        _PUBLISHER,
        "        if self._sending is not None:\n            await",
        "        if False:\n            await",
    ),
    _mutant(
        "a backlog of deliveries without a bound",
        _PUBLISHER,
        "_BACKLOG - len(self._waiting)",
        "_BACKLOG",
    ),
    _mutant(
        "a push whose answer was lost, made again",
        _LISTS,
        "                raise\n",
        "                return await self._ask(commands)\n",
    ),
    _mutant(
        "a broker that is waited for without an end",
        _LISTS,
        "asyncio.timeout(_PATIENCE)",
        "asyncio.timeout(None)",
    ),
    _mutant(
        "a delivery that is sent, and answered to be sent",
        _SENDING,
        "if send(to, queue, run, conversation, name, number, title) then return end",
        "send(to, queue, run, conversation, name, number, title)",
    ),
    _mutant(
        "a queue that refuses and is believed",
        _SENDING,
        "return type(redis.pcall('LPUSH', to, message)) == 'number'",
        "redis.pcall('LPUSH', to, message) return true",
    ),
    _mutant(
        "a name that is not text within text",
        _SENDING,
        "string.sub(cjson.encode(title), 2, -2)",
        "title",
    ),
    _mutant(
        "the first delivery, whichever it is",
        _SENDING,
        "NUMBER = string.format('%d', number)",
        "NUMBER = '1'",
    ),
    _mutant(
        "the wrong end of a queue",
        _SENDING,
        "'LPUSH'",
        "'RPUSH'",
    ),
    _mutant(
        "a broker elsewhere that nobody sends to",
        _SETTINGS,
        "return not self.broker_url or self.broker_url == self.redis_url",
        "return True",
    ),
)
