"""Chats of the AI SDK's own packages, in Node.js, at a real stack: through kills of workers and of the API.

``make check-clients`` runs this: the packages come from a package index.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any, Final
from uuid import uuid4

import pytest

from tests.pages import ROOT
from tests.process.cluster import Cluster
from tests.process.node import installed
from tests.process.node_pages import NodePages, Shown, has_word, node_process
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.chaos]

PROGRAM: Final = ROOT / "tests" / "clients" / "ai_sdk"
WORDS: Final = " ".join(f"w{number}" for number in range(1, 61))
PICK: Final = {"name": "pick_colour", "description": "Ask the person for a colour."}


class Pages(NodePages):
    """Pages of the AI SDK."""

    def __init__(self, cluster: Cluster, process: subprocess.Popen[str]) -> None:
        super().__init__(cluster, process)
        self.chat = ""
        self.api = ""

    def begin(self, model: str, **agent: Any) -> str:
        """Keep an agent on the server, for a new chat; the address of its chats."""
        self.chat, self.api = f"chat-{uuid4().hex}", f"/ui/agents/{self.keep(model, **agent)}/chat"
        return self.api

    def open(self, page: str, *, loaded: bool = False) -> None:
        """Open the chat on another page, with its messages as a page is loaded."""
        messages = self.listed() if loaded else []
        self.act("open", page, api=f"{self.cluster.stack.url}{self.api}", chat=self.chat, messages=messages)

    def say(self, page: str, text: str, **options: Any) -> None:
        """Send a message."""
        self.act("send", page, message={"text": text}, options=options)

    def ends(self, page: str, status: str = "ready") -> Shown:
        """What a page shows once the answer is there."""
        return self.shows(page, lambda shown: shown["status"] == status and shown["finishes"])

    def listed(self) -> list[dict[str, Any]]:
        """The messages of the chat, as the server has them."""
        answer = self.cluster.http.get(f"{self.api}/{self.chat}/messages")
        assert answer.status_code == 200, answer.text
        messages: list[dict[str, Any]] = answer.json()["messages"]
        return messages

    def run_id(self, page: str) -> str:
        """The run that writes the last answer."""
        shown = self.shows(page, lambda shown: shown["messages"] and shown["messages"][-1]["role"] == "assistant")
        run_id: str = shown["messages"][-1]["id"]
        return run_id


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """A process of Node.js with pages."""
    with node_process(installed(PROGRAM, tmp_path_factory.mktemp("ai_sdk"), "THE AI SDK")) as process:
        yield process


@pytest.fixture
def pages(cluster: Cluster, browser: subprocess.Popen[str]) -> Pages:
    """Pages at the stack."""
    return Pages(cluster, browser)


def texts(message: dict[str, Any]) -> list[str]:
    """The texts of a message."""
    return [part["text"] for part in message["parts"] if part["type"] == "text"]


def calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls of a message."""
    return [part for part in message["parts"] if "toolCallId" in part]


def test_an_answer_whose_worker_is_killed_is_whole_on_all_pages(pages: Pages) -> None:
    cluster = pages.cluster
    cluster.start("worker")
    pages.begin("say-60+rate-10+reasoning")
    pages.open("first")
    pages.say("first", "hello")
    pages.shows("first", lambda shown: shown["messages"][-1]["role"] == "assistant" and has_word("w3")(shown))
    run_id = pages.run_id("first")
    cluster.kill("worker", cluster.holder(run_id))
    pages.open("reloaded", loaded=True)
    pages.act("resume", "reloaded")
    first, reloaded = pages.ends("first"), pages.ends("reloaded")
    assert [each["errors"] for each in (first, reloaded)] == [[], []]
    assert "reset-step" in [chunk["type"] for chunk in first["chunks"]]
    for shown in (first, reloaded):
        assert texts(shown["messages"][-1]) == [WORDS]
        assert [part["type"] for part in shown["messages"][-1]["parts"]] == ["step-start", "reasoning", "text"]
        assert shown["finishes"][-1]["finishReason"] == "stop"
    assert texts(pages.listed()[-1]) == [WORDS]
    assert cluster.ended(run_id).output == WORDS


def test_an_answer_goes_on_over_a_kill_of_the_api_and_over_its_end(pages: Pages) -> None:
    cluster = pages.cluster
    for signal_name in ("kill", "terminate"):
        pages.begin("say-60+rate-15")
        page = f"over a {signal_name}"
        pages.open(page)
        pages.say(page, "hello")
        pages.shows(page, has_word("w3"))
        if signal_name == "kill":
            cluster.kill("api")
        else:
            cluster.terminate("api")
            eventually(lambda: not cluster.stack.pids("api"))
        pages.shows(page, lambda shown: shown["status"] == "error")
        cluster.start("api")
        pages.act("resume", page)
        shown = pages.ends(page)
        assert texts(shown["messages"][-1]) == [WORDS]
        assert len(shown["messages"]) == 2


def test_a_denied_call_and_a_tool_of_the_page(pages: Pages) -> None:
    pages.begin("tool-1+use-send", tools=["send"])
    pages.open("denies")
    pages.say("denies", '[[args {"seconds": 0}]]')
    (part,) = calls(pages.ends("denies")["messages"][-1])
    pages.act("decide", "denies", id=part["approval"]["id"], approved=False, reason="Not on a Sunday.")
    shown = pages.shows("denies", lambda shown: texts(shown["messages"][-1]) and shown["status"] == "ready")
    (part,) = calls(shown["messages"][-1])
    assert (part["state"], part["approval"]["reason"]) == ("output-denied", "Not on a Sunday.")
    pages.begin("tool-2", client_tools=[PICK])
    pages.open("answers")
    pages.say("answers", "hello")
    shown = pages.shows("answers", lambda shown: texts(shown["messages"][-1]) and shown["status"] == "ready")
    assert [call["toolName"] for call in shown["calls"]] == ["pick_colour"] * 2
    assert [part["output"] for part in calls(shown["messages"][-1])] == [{"colour": "red"}] * 2
    assert texts(shown["messages"][-1]) == ['done: 2 tool results, the last one: {"colour": "red"}']
    assert shown["errors"] == []


def test_another_answer_an_edit_and_an_error(pages: Pages) -> None:
    pages.begin("echo")
    pages.open("asks")
    pages.say("asks", "hello")
    first = pages.ends("asks")["messages"]
    pages.act("regenerate", "asks")
    shown = pages.shows("asks", lambda shown: len(shown["finishes"]) == 2)
    assert [each["role"] for each in shown["messages"]] == ["user", "assistant"]
    assert shown["messages"][1]["id"] != first[1]["id"]
    assert texts(shown["messages"][1]) == ["echo: hello"] == texts(pages.listed()[1])
    pages.act("send", "asks", message={"text": "changed", "messageId": first[0]["id"]}, options={})
    (error,) = pages.shows("asks", lambda shown: shown["errors"])["errors"]
    assert "was sent before: what was said stays as it was" in error
    pages.begin("401")
    pages.open("fails")
    pages.say("fails", "hello")
    (error,) = pages.shows("fails", lambda shown: shown["status"] == "error")["errors"]
    assert error.startswith("The provider does not accept the key. (authentication, ")
