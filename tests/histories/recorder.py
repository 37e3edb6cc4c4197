"""Requests of clients, and a record of each: what was asked and answered, and when. What a client read is exactly what
it was sent; an answer that was lost, or that leaves open what was done, is none."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import httpx

from tests.histories.linearizability import NEVER, UNDECIDED, Operation, violations
from tests.process.inputs import decision

_TAKEN: Final = (200, 202)
_STAYS: Final[Mapping[str, Sequence[str]]] = {
    "run.created": (),
    "run.started": (),
    "run.retrying": ("step", "attempt"),
    "step.lost": ("step", "attempt"),
    "run.cancelling": (),
    "action.required": ("action.id", "action.call_id"),
    "action.resolved": ("action_id", "decision"),
    "tool.finished": ("message.call_id",),
    "run.finished": ("status",),
}
"""Events that are in the log, and what is told of them: all others may be gone one day."""


class Recorder:
    """Asks any of several API processes at `doors`; `operations` are those on the runs of each idempotency key, and
    `store` is what became of the store."""

    def __init__(self, doors: Sequence[str], chance: random.Random, timeout: float, *, rewinds: bool = False) -> None:
        """`rewinds`: whether the store may lose its last writes."""
        self._doors = doors
        self._chance = chance
        self._http = httpx.AsyncClient(
            timeout=timeout,
            trust_env=False,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            headers={"Accept": "application/json"},
        )
        self._rewinds = rewinds
        self._left_open: set[tuple[object, ...]] = set()
        self.operations: list[tuple[str, Operation]] = []
        self.store: list[Operation] = []
        self.undecided: list[str] = []
        """Keys of which nothing can be known: power cuts beside answers that were lost leave too much open."""
        self.lost = 0
        """Answers that were lost."""

    async def close(self) -> None:
        """No more is asked."""
        await self._http.aclose()

    def rewound(self, since: float, begun: float, *, keeps: bool) -> None:
        """The store went back between `begun` and now, to no moment before `since`. `keeps`: with what was
        acknowledged."""
        ended = time.monotonic()
        self.store += [Operation("synced", since, since), Operation("rewound", begun, ended, asked=keeps)]

    def violations(self) -> list[str]:
        """What the search finds; of the first one with all that was done."""
        found = violations(self.operations, self.store)
        self.undecided = [each for each in found if each.endswith(UNDECIDED)]
        found = [each for each in found if not each.endswith(UNDECIDED)]
        if found:
            key = found[0].partition(":")[0]
            ops = [op for each, op in self.operations if each == key] + self.store
            found[0] += "".join(f"\n{op}" for op in sorted(ops, key=lambda op: op.begun))
        return found

    async def submit(self, key: str, body: Mapping[str, Any]) -> str | None:
        """Submit a run; its id, or None if the answer was lost."""
        begun, answer = await self._ask("POST", "/v1/runs", json=body, headers={"Idempotency-Key": key})
        if answer is None:
            self._note(key, "submit", begun, NEVER)
            return None
        run = str(answer.json()["id"])
        self._note(key, "submit", begun, answer=run)
        self._note_run(key, run, begun, answer.json())
        return run

    async def read(self, key: str, run: str, wait: float = 0, until: str = "change") -> dict[str, Any]:
        """The run, perhaps after a wait; empty if the answer was lost, and with no status but an id if it is gone."""
        asked = {"wait": wait, "until": until} if wait else {}
        begun, answer = await self._ask("GET", f"/v1/runs/{run}", params=asked)
        if answer is None:
            return {}
        if answer.status_code == 404:
            self._note(key, "gone", begun, run=run)
            return {"id": run}
        return self._note_run(key, run, begun, answer.json())

    async def events(self, key: str, run: str) -> None:
        """Read all events."""
        begun, answer = await self._ask("GET", f"/v1/runs/{run}/events", params={"limit": 1000})
        if answer is None:
            return
        if answer.status_code == 404:
            self._note(key, "gone", begun, run=run)
            return
        page = answer.json()
        if not page["has_more"]:
            told = tuple(event for each in page["data"] if (event := _told(each)))
            self._note(key, "events", begun, run=run, answer=(page["next_after"], told))

    async def cancel(self, key: str, run: str) -> bool:
        """Cancel a run; whether that was answered."""
        return await self._change(key, run, "cancel", None, f"/v1/runs/{run}/cancel")

    async def decide(self, key: str, run: str, action: str, decided: str, token: str) -> bool:
        """Decide on a call that waits; whether that was answered."""
        how = (action, decided, token)
        return await self._change(key, run, "decide", how, f"/v1/runs/{run}/input", decision(action, decided), token)

    async def say(self, key: str, run: str, words: str) -> bool:
        """Say something into a run; whether that was answered."""
        item = {"type": "message", "content": words}
        return await self._change(key, run, "say", words, f"/v1/runs/{run}/input", item, words)

    async def find(self) -> None:
        """Which runs there are under each key that was used."""
        found: dict[str, list[str]] = defaultdict(list)
        page: dict[str, Any] = {"next_cursor": None}
        began = time.monotonic()
        while page.get("next_cursor", "") is not None or not found:
            asked = {"limit": 200, **({"cursor": page["next_cursor"]} if page["next_cursor"] else {})}
            _, answer = await self._ask("GET", "/v1/runs", params=asked)
            assert answer is not None, "nothing is killed any more"
            page = answer.json()
            for run in page["data"]:
                found[run["metadata"].get("key", "")].append(run["id"])
            if page["next_cursor"] is None:
                break
        for key in {key for key, _ in self.operations}:
            self._note(key, "found", began, answer=tuple(found[key]))

    async def _change(
        self, key: str, run: str, what: str, how: Any, path: str, item: Mapping[str, Any] | None = None, token: str = ""
    ) -> bool:
        body, headers = {"items": [item]} if item else None, {"Idempotency-Key": token} if token else {}
        begun, answer = await self._ask("POST", path, json=body, headers=headers)
        code = answer.json().get("code") if answer is not None else None
        if answer is None:
            self._note(key, what, begun, NEVER, run=run, asked=how)
        elif answer.status_code in _TAKEN:
            self._note(key, what, begun, run=run, asked=how)
            self._note_run(key, run, begun, answer.json())
        elif answer.status_code == 404:
            self._note(key, "gone", begun, run=run)
        elif code == "run_ended":
            self._note(key, "refused", begun, run=run, asked=(what, how))
        elif code == "action_already_resolved":
            self._note(key, what, begun, run=run, asked=how, answer=True)
        else:
            assert code == "unknown_action", answer.text
            self._note(key, "unknown", begun, run=run, asked=how[0])
        return answer is not None

    async def _ask(self, method: str, path: str, **request: Any) -> tuple[float, httpx.Response | None]:
        """When it was asked, and the answer; None if it was lost, or does not say what was done."""
        begun = time.monotonic()
        for door in self._chance.sample(self._doors, len(self._doors)):
            try:
                answer = await self._http.request(method, door + path, **request)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
            except httpx.TransportError:
                break
            if answer.status_code in (*_TAKEN, 404, 409):
                return begun, answer
            assert answer.status_code == 503, f"{method} {path}: {answer.status_code} {answer.text}"
            break
        self.lost += 1
        return begun, None

    def _note_run(self, key: str, run: str, begun: float, shown: dict[str, Any]) -> dict[str, Any]:
        pending = frozenset(action["id"] for action in shown["pending_actions"])
        self._note(key, "read", begun, run=run, answer=(shown["status"], shown["last_event_id"], pending))
        return shown

    def _note(
        self, key: str, what: str, begun: float, ended: float = 0, run: str = "", asked: Any = None, answer: Any = None
    ) -> None:
        if ended == NEVER:
            # The first of the same requests without an answer may take effect whenever another one may; but not twice.
            request = (key, what, run, asked)
            if request in self._left_open and not self._rewinds:
                return
            self._left_open.add(request)
        self.operations.append((key, Operation(what, begun, ended or time.monotonic(), run, asked, answer)))


def _told(event: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """What is looked at of an event; None if that is nothing."""
    if event["type"] == "message.created" and event["steer"]:
        return event["seq"], "said", event["message"]["content"]
    if event["type"] not in _STAYS:
        return None
    found = [event["seq"], event["type"]]
    for path in _STAYS[event["type"]]:
        value: Any = event
        for name in path.split("."):
            value = value[name]
        found.append(value)
    return tuple(found)
