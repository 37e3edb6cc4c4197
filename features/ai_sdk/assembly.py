"""UI messages from chunks, as the client puts them together: so a list has what a stream has shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from .chunks import Chunk

Part = dict[str, Any]


class AssembledMessage:
    """A message of the assistant, made of the chunks of its answer."""

    def __init__(self) -> None:
        self.id = ""
        self.metadata: dict[str, Any] = {}
        self.parts: list[Part] = []
        self._open: dict[str, Part] = {}
        self._calls: dict[str, Part] = {}

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Take chunks in."""
        for chunk in chunks:
            apply = _APPLY.get(chunk["type"])
            if apply is not None:
                apply(self, chunk)

    def shown(self) -> dict[str, Any]:
        """Return the message as JSON has it."""
        return {"id": self.id, "role": "assistant", "metadata": self.metadata, "parts": self.parts}

    def _start(self, chunk: Chunk) -> None:
        self.id, self.metadata = chunk["messageId"], dict(chunk["messageMetadata"])

    def _start_step(self, chunk: Chunk) -> None:
        self.parts.append({"type": "step-start"})

    def _reset_step(self, chunk: Chunk) -> None:
        while self.parts and self.parts[-1]["type"] != "step-start":
            self.parts.pop()
        self._open = {}

    def _begin(self, chunk: Chunk) -> None:
        kind = chunk["type"].partition("-")[0]
        part: Part = {"type": kind, "text": "", "state": "streaming"}
        if kind == "reasoning":
            part["id"] = chunk["id"]
        self._open[chunk["id"]] = part
        self.parts.append(part)

    def _delta(self, chunk: Chunk) -> None:
        self._open[chunk["id"]]["text"] += chunk["delta"]

    def _end(self, chunk: Chunk) -> None:
        self._open.pop(chunk["id"])["state"] = "done"

    def _file(self, chunk: Chunk) -> None:
        self.parts.append(chunk)

    def _data(self, chunk: Chunk) -> None:
        for part in self.parts:
            if part["type"] == chunk["type"] and part["id"] == chunk["id"]:
                part["data"] = chunk["data"]
                return
        self.parts.append(dict(chunk))

    def _input(self, chunk: Chunk) -> None:
        call_id, tool = chunk["toolCallId"], chunk["toolName"]
        known = self._calls.get(call_id)
        if known is not None:
            known.update(state="input-available", input=chunk["input"])
            return
        part: Part = {"type": "dynamic-tool", "toolName": tool} if chunk.get("dynamic") else {"type": f"tool-{tool}"}
        part |= {"toolCallId": call_id, "state": "input-available", "input": chunk["input"]}
        if chunk.get("providerExecuted"):
            part["providerExecuted"] = True
        self._calls[call_id] = part
        self.parts.append(part)

    def _approval_request(self, chunk: Chunk) -> None:
        approval = {"id": chunk["approvalId"], "descriptor": chunk["approvalDescriptor"]}
        self._calls[chunk["toolCallId"]].update(state="approval-requested", approval=approval)

    def _approval_response(self, chunk: Chunk) -> None:
        for part in self._calls.values():
            if part.get("approval", {}).get("id") == chunk["approvalId"]:
                part["approval"] |= {name: chunk[name] for name in ("approved", "reason") if name in chunk}
                part["state"] = "approval-responded"

    def _output(self, chunk: Chunk) -> None:
        self._calls[chunk["toolCallId"]].update(state="output-available", output=chunk["output"])

    def _output_error(self, chunk: Chunk) -> None:
        self._calls[chunk["toolCallId"]].update(state="output-error", errorText=chunk["errorText"])

    def _output_denied(self, chunk: Chunk) -> None:
        self._calls[chunk["toolCallId"]].update(state="output-denied")


_APPLY: Final[Mapping[str, Callable[[AssembledMessage, Chunk], None]]] = MappingProxyType(
    {
        "start": AssembledMessage._start,
        "start-step": AssembledMessage._start_step,
        "reset-step": AssembledMessage._reset_step,
        "text-start": AssembledMessage._begin,
        "reasoning-start": AssembledMessage._begin,
        "text-delta": AssembledMessage._delta,
        "reasoning-delta": AssembledMessage._delta,
        "text-end": AssembledMessage._end,
        "reasoning-end": AssembledMessage._end,
        "file": AssembledMessage._file,
        "steering-message": AssembledMessage._file,
        "data-palaver-question": AssembledMessage._data,
        "tool-input-available": AssembledMessage._input,
        "tool-approval-request": AssembledMessage._approval_request,
        "tool-approval-response": AssembledMessage._approval_response,
        "tool-output-available": AssembledMessage._output,
        "tool-output-error": AssembledMessage._output_error,
        "tool-output-denied": AssembledMessage._output_denied,
    }
)
"""The reading of a chunk; one that is not here leaves no trace in a message."""
