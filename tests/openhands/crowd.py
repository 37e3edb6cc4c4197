"""A crowd of OpenHands' own clients: what each conversation of theirs is, and what its client must have seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx

from tests.checkers.evidence import read_lines
from tests.openhands.client import OpenHandsClient

QUICK: Final = {"num_retries": 2, "retry_min_wait": 0, "retry_max_wait": 1, "retry_multiplier": 0.1}
"""Retries of an agent that do not keep a test waiting."""
_EVER: Final = 300.0
"""Seconds that a client waits for a run."""
_OLDER_ON_ERRORS: Final = 20.0
"""The same where the older client never ends: its wait takes no error for an end."""


@dataclass(frozen=True)
class Plot:
    """What happens in a conversation, and how its first run ends."""

    model: str
    """With a place for how long it takes to answer."""
    tools: tuple[str, ...] = ()
    text: str = "hello"
    policy: str = ""
    """Calls wait for approval by this policy; running again approves."""
    options: Mapping[str, Any] = field(default_factory=dict)
    ends: str = "finished"
    code: str | None = None
    """Of the error that the client raises."""

    @property
    def fails(self) -> bool:
        """Whether the client raises something."""
        return self.ends in ("error", "stuck")


PLOTS: Final = (
    Plot("fake/tool-6+use-each+ttft-{ms}", ("calculator", "record", "record_idempotent")),
    Plot("fake/say-60+rate-10+ttft-{ms}"),
    Plot("limited/tool-4+429-1@2+500-1@3+use-calculator+ttft-{ms}", ("calculator",)),
    Plot("fake/tool-1+use-calculator+ttft-500", ("calculator",), policy="AlwaysConfirm",
         ends="waiting_for_confirmation"),
    Plot("fake/steps-3-1-3+use-record+ttft-{ms}", ("record",)),
    Plot("fake/401-*", ends="error", code="LLMAuthenticationError"),
    Plot("fake/tool-3+use-finish+ttft-{ms}"),
    Plot("fake/tool-9+use-calculator", ("calculator",), options={"max_iteration_per_run": 3}, ends="error",
         code="MaxIterationsReached"),
    Plot("fake/tool-9+use-calculator+ttft-500", ("calculator",), '[[args {"expression": "1+1"}]] hello', ends="stuck"),
)  # fmt: skip


@dataclass(frozen=True)
class Told:
    """One conversation, as its client has it."""

    name: str
    plot: Plot
    id: str
    did: Mapping[str, Mapping[str, Any]]
    """What came of each word."""
    heard: Sequence[str]
    """The ids of the events that its callback was told, of those that the server keeps."""

    @property
    def newer(self) -> bool:
        """Whether its client is of the newer generation."""
        return self.name.startswith("1.58")


class Talkers:
    """Conversations of clients of each generation."""

    def __init__(self, host: str, folder: Path, clients: Mapping[str, OpenHandsClient], each: int, ms: int) -> None:
        """So many of each generation, whose models take so many milliseconds."""
        self._clients = [*clients.values()]
        self._ledgers: list[Path] = []
        self._plots: dict[str, Plot] = {}
        for first, (generation, client) in enumerate(clients.items()):
            plots = {f"{generation}/{i}": PLOTS[(i + first) % len(PLOTS)] for i in range(each)}
            self._plots |= plots
            self._ledgers.append(folder / f"{generation}.jsonl")
            plans = [_plan(name, plot, ms) for name, plot in plots.items()]
            client.begin("gather", "", host=host, ledger=str(self._ledgers[-1]), conversations=plans).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for client in self._clients:
            client.begin("disperse", "").result()

    def __len__(self) -> int:
        """How many conversations."""
        return len(self._plots)

    def say(self, word: str, names: Iterable[str] | None = None) -> None:
        """Tell conversations, or all, to do something."""
        for client in self._clients:
            client.begin("tell", "", word=word, names=list(self._plots if names is None else names)).result()

    def told(self) -> dict[str, Told]:
        """What clients have seen so far, by the names of the conversations that are open."""
        did: dict[str, dict[str, Any]] = defaultdict(dict)
        heard: dict[str, list[str]] = defaultdict(list)
        for line in (line for ledger in self._ledgers for line in read_lines(ledger)):
            if "did" in line:
                did[line["of"]][line["did"]] = line
            elif line["kept"]:
                heard[line["of"]].append(line["told"])
        assert all("id" in each["open"] for each in did.values()), did
        return {name: Told(name, self._plots[name], it["open"]["id"], it, heard[name]) for name, it in did.items()}

    def done(self, word: str, names: Iterable[str] | None = None) -> bool:
        """Whether conversations, or all, have done something."""
        told = self.told()
        return all(name in told and word in told[name].did for name in (names or self._plots))


def _plan(name: str, plot: Plot, ms: int) -> dict[str, Any]:
    never = plot.fails and not name.startswith("1.58")
    return {
        "name": name,
        "llm": {"model": plot.model.format(ms=ms), "usage_id": "agent", **QUICK},
        "tools": plot.tools,
        "text": plot.text,
        "policy": plot.policy,
        "options": plot.options,
        "timeout": _OLDER_ON_ERRORS if never else _EVER,
    }


def check_outcome(told: Told, word: str, ends: str) -> None:
    """What the client returned or raised is what happened."""
    did = told.did[word]
    if ends not in ("error", "stuck"):
        assert "raised" not in did, (told.plot, did)
    else:
        assert did.get("raised") == "ConversationRunError", (told.plot, did)
    if told.newer:
        assert did.get("status", ends) == ends, (told.plot, did)
        assert did.get("code") == (told.plot.code if ends == "error" else None), (told.plot, did)


def events_there(http: httpx.Client, conversation: str) -> list[dict[str, Any]]:
    """All events of a conversation, as the server has them."""
    found: list[dict[str, Any]] = []
    page: str | None = ""
    while page is not None:
        answer = http.get(
            f"/openhands/api/conversations/{conversation}/events/search", params={"page_id": page} if page else {}
        )
        assert answer.status_code == 200, answer.text
        found += answer.json()["items"]
        page = answer.json()["next_page_id"]
    return found
