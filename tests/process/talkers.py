"""A client of each wire, that takes nothing on trust: what it has shown is what its connections brought, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from features.ag_ui.tests.unit.ag_ui_page import check, read, shown
from tests.process.talking import Item, Talker, Turn, text_in, transcript_of

_MCP: Final = {"mcp-protocol-version": "2025-11-25"}


class NativeTalker(Talker):
    """Follows the events of a run, and goes on behind the last one that it has."""

    wire = "native"

    def _begin(self, text: str) -> None:
        self._run, self._last, self._over = "", 0, False
        self._deltas, self._turn = dict[str, str](), Turn()

    def _hear(self) -> bool:
        if not self._run:
            body: dict[str, Any] = {"agent": self.agent, "input": self._said[-1]}
            if self.runs:
                body["conversation_id"] = self._http.get(f"/v1/runs/{self.runs[-1]}").json()["conversation_id"]
            self._run = self._post("/v1/runs", body, **{"Idempotency-Key": self.key})["id"]
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(self._last)}
        for line in self._stream("GET", f"/v1/runs/{self._run}/events", headers=headers):
            assert not self._over, "an event behind the end"
            self._event(orjson.loads(line))
        assert self._over, "the body ended, and the run did not"
        self.runs.append(self._run)
        self.transcript += self._turn.whole()
        return True

    def _event(self, event: dict[str, Any]) -> None:
        if seq := event.get("seq"):
            assert seq > self._last, "an event twice"
            self._last = seq
        match event["type"]:
            case "message.delta":
                self._deltas[event["step"]] = self._deltas.get(event["step"], "") + event["text"]
            case "message.discarded":
                self._deltas.pop(event["step"], None)
            case "message.created":
                message = event["message"]
                told = self._deltas.get(event["step"], text_in(message["content"]))
                assert told == text_in(message["content"]), "deltas that are not the message"
                self._turn.message(message)
            case "tool.finished":
                self._turn.message(event["message"])
        self._over = event["type"] == "run.finished"


class AiSdkTalker(Talker):
    """Sends a message once more, or comes back to its answer, which begins with its start each time."""

    wire = "AI SDK"

    def shown(self, log: Sequence[Item]) -> list[Item]:
        """A call has its arguments as JSON."""
        return [(*item[:2], _compact(item[2]), item[3]) if item[0] == "call" else item for item in log]

    def _begin(self, text: str) -> None:
        self._sent = False

    def _hear(self) -> bool:
        place = f"/ui/agents/{self.agent}/chat"
        if self._sent and self._chance.random() < 0.7:
            chunks = [*self._chunks("GET", f"{place}/{self.name}/stream")]
            if self._answer.status_code == 204 or chunks[0]["messageId"] in self.runs:
                self._sent = False
                return False
        else:
            self._sent = True
            parts = [{"type": "text", "text": self._said[-1]}]
            message = {"id": self.key, "role": "user", "parts": parts}
            body = {"id": self.name, "messages": [message], "trigger": "submit-message"}
            chunks = [*self._chunks("POST", place, json=body)]
        self.runs.append(chunks[0]["messageId"])
        self.transcript += [("user", self._said[-1]), *_of_chunks(chunks)]
        return True

    def _chunks(self, method: str, path: str, **request: Any) -> Sequence[dict[str, Any]]:
        lines = [*self._stream(method, path, **request)]
        if self._answer.status_code == 204:
            return []
        assert lines[-1] == "[DONE]", "the body ended, and the answer did not"
        chunks = [orjson.loads(line) for line in lines[:-1]]
        kinds = [chunk["type"] for chunk in chunks]
        assert (kinds[0], kinds[-1], kinds.count("start"), kinds.count("finish")) == ("start", "finish", 1, 1), kinds
        return chunks


def _of_chunks(chunks: Sequence[dict[str, Any]]) -> list[Item]:
    """The answer that a page has of these."""
    steps: list[list[dict[str, Any]]] = []
    for chunk in chunks:
        if chunk["type"] == "reset-step":
            steps[-1] = []
        elif chunk["type"] == "start-step":
            steps.append([])
        elif chunk["type"].startswith(("text-", "tool-")):
            steps[-1].append(chunk)
    turn = Turn()
    for step in steps:
        text = ""
        for chunk in step:
            match chunk["type"]:
                case "text-delta":
                    text += chunk["delta"]
                case "text-end":
                    turn.text(text)
                    text = ""
                case "tool-input-available":
                    turn.call(chunk["toolCallId"], chunk["toolName"], orjson.dumps(chunk["input"]).decode())
                case "tool-output-available":
                    turn.result(chunk["toolCallId"], chunk["output"])
                case "tool-output-error":
                    turn.result(chunk["toolCallId"], chunk["errorText"])
        assert not text, "a text without an end"
    return turn.whole()


def _compact(arguments: str) -> str:
    return orjson.dumps(orjson.loads(arguments)).decode()


class AgUiTalker(Talker):
    """Sends its request again, and takes the snapshot that it gets for what it had."""

    wire = "AG-UI"
    _messages: list[dict[str, Any]]

    def _begin(self, text: str) -> None:
        self._messages = [*getattr(self, "_messages", ()), {"id": self.key, "role": "user", "content": text}]
        self._body = {"threadId": self.name, "runId": self.key, "messages": self._messages}

    def _hear(self) -> bool:
        events: list[dict[str, Any]] = []
        try:
            for line in self._stream("POST", f"/ag-ui/agents/{self.agent}", json=self._body):
                events += read(f"data: {line}")
        finally:
            self._messages = shown(self._messages, events)
        check(events, self._body)
        assert events[-1]["type"] == "RUN_FINISHED", events[-1]
        self.runs.append(events[-1]["result"]["runId"])
        messages = [{"content": "", "tool_calls": [], "call_id": None, **each} for each in self._messages]
        for message in messages:
            message["call_id"] = message.get("toolCallId")
            message["tool_calls"] = [{"id": call["id"], **call["function"]} for call in message.get("toolCalls", ())]
        self.transcript = transcript_of(messages)
        return True


class ResponsesTalker(Talker):
    """Goes on behind the number of the last event of a response that it has."""

    wire = "OpenAI Responses"
    _response = ""

    def _begin(self, text: str) -> None:
        self._before, self._response = self._response, ""
        self._last, self._over = -1, False
        self._events: list[dict[str, Any]] = []

    def _hear(self) -> bool:
        if self._response:
            params = {"stream": "true", "starting_after": str(self._last)}
            lines = self._stream("GET", f"/openai/v1/responses/{self._response}", params=params)
        else:
            body = {"model": f"agent/{self.agent}", "input": self._said[-1], "background": True, "stream": True}
            body |= {"previous_response_id": self._before} if self._before else {}
            headers = {"Idempotency-Key": self.key}
            lines = self._stream("POST", "/openai/v1/responses", json=body, headers=headers)
        for line in lines:
            event = orjson.loads(line)
            assert not self._over, "an event behind the end"
            assert event["sequence_number"] > self._last, "an event twice"
            self._last = event["sequence_number"]
            self._events.append(event)
            self._response = self._response or event["response"]["id"]
            self._over = event["type"] == "response.completed"
        assert self._over, "the body ended, and the response did not"
        response = self._events[-1]["response"]
        self.runs.append(response["metadata"]["palaver_run_id"])
        items = _items(self._events)
        output = response["output"]
        # A thought that was whole before its attempt failed cannot be taken back: the output is without it.
        items = [item for item in items if item["type"] != "reasoning" or item in output]
        assert items == output, f"what was streamed is not the output: {items}, {output}"
        self.transcript += [("user", self._said[-1]), *_of_items(items)]
        return True


def _items(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items that are whole; each text is what its deltas add up to."""
    texts: dict[str, str] = {}
    kept = []
    for event in events:
        match event["type"]:
            case "response.output_text.delta":
                texts[event["item_id"]] = texts.get(event["item_id"], "") + event["delta"]
            case "response.output_item.done" if event["item"]["status"] != "incomplete":
                item = event["item"]
                kept.append(item)
                if item["type"] == "message":
                    assert item["content"][0]["text"] == texts[item["id"]], "deltas that are not the text"
    assert [event["type"] for event in events].count("response.created") == 1
    return kept


def _of_items(items: Sequence[dict[str, Any]]) -> list[Item]:
    turn = Turn()
    for item in items:
        if item["type"] == "message":
            turn.text(item["content"][0]["text"])
        elif item["type"] == "mcp_call":
            turn.call(item["id"], item["name"], item["arguments"])
            turn.result(item["id"], item["output"])
    return turn.whole()


class ChatTalker(Talker):
    """Has nothing to come back with but its key: it hears the whole completion again. It must not leave, which would
    cancel the run."""

    wire = "OpenAI chat"
    leaves = False

    def shown(self, log: Sequence[Item]) -> list[Item]:
        """The texts of an answer as one."""
        made: list[Item] = []
        for item in log:
            if item[0] == "text" and made[-1][0] == "text":
                made[-1] = ("text", f"{made[-1][1]}\n\n{item[1]}")
            elif item[0] != "call":
                made.append(item)
        return made

    def _begin(self, text: str) -> None:
        self.transcript.append(("user", text))

    def _hear(self) -> bool:
        roles = {"user": "user", "text": "assistant"}
        messages = [{"role": roles[item[0]], "content": item[1]} for item in self.transcript]
        body = {"model": f"agent/{self.agent}", "messages": messages, "stream": True}
        headers = {"Idempotency-Key": self.key}
        lines = [*self._stream("POST", "/openai/v1/chat/completions", json=body, headers=headers)]
        assert lines[-1] == "[DONE]", "the body ended, and the completion did not"
        choices = [orjson.loads(line)["choices"][0] for line in lines[:-1]]
        assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["stop"]
        assert choices[-1]["finish_reason"], "a chunk behind the end"
        self.runs.append(self._answer.headers["x-run-id"])
        self.transcript.append(("text", "".join(choice["delta"].get("content") or "" for choice in choices)))
        return True


class McpTalker(Talker):
    """A host, which looks at its run behind the last event that it has."""

    wire = "MCP"
    leaves = False
    _conversation = ""

    def _begin(self, text: str) -> None:
        self._run, self._last, self._turn, self._over = "", 0, Turn(), False

    def _hear(self) -> bool:
        if not self._run:
            arguments = {"message": self._said[-1], "idempotency_key": self.key, "wait_s": 0}
            if self._conversation:
                arguments["conversation"] = self._conversation
            state = self._call(f"agent_{self.agent}", arguments)
            self._run, self._conversation = state["run_id"], state["conversation"]
        state = self._call("run_get", {"run_id": self._run, "after": self._last, "wait_s": 5})
        for event in state["events"]:
            assert event["seq"] > self._last, "an event twice"
            assert not self._over, "an event behind the end"
            self._last, self._over = event["seq"], event["type"] == "run.finished"
            if "message" in event:
                self._turn.message(event["message"])
        if state["status"] != "completed" or state["more_events"]:
            return False
        self.runs.append(self._run)
        self.transcript += self._turn.whole()
        assert ("text", state["result"]) == self.transcript[-1]
        return True

    def _call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        params = {"name": tool, "arguments": arguments}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        result = self._post("/mcp", body, **_MCP)["result"]
        assert not result["isError"], result
        state: dict[str, Any] = result["structuredContent"]
        return state


TALKERS: Final[Sequence[type[Talker]]] = (
    NativeTalker, AiSdkTalker, AgUiTalker, ResponsesTalker, ChatTalker, McpTalker
)  # fmt: skip
