"""The deed as tools of an MCP server on standard input and output. It imports nothing that takes time."""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.process.deeds import PNG, begin, end, gate, note

NAMES = ("deed", "deed_brief", "deed_again")
_ONE_AT_A_TIME = threading.Lock()
_GONE: dict[int, threading.Event] = {}
"""By the number of a call that waits: set when its caller has left."""


def write(message: dict[str, Any]) -> None:
    """Send a message."""
    with _ONE_AT_A_TIME:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def call(number: int, params: dict[str, Any]) -> None:
    """Do a deed, and answer."""
    do, key = params["arguments"]["do"], params["arguments"]["key"]

    def progress(text: str, fraction: float) -> None:
        told = {"progressToken": params["_meta"]["progressToken"], "progress": fraction, "total": 1, "message": text}
        write({"method": "notifications/progress", "params": told})

    try:
        until = time.monotonic() + begin(do, key, progress)
        while time.monotonic() < until and not gate(key).exists():
            if _GONE[number].wait(0.02):
                note(f"left {key}")
                return
        done = end(do, key, os.environ.get("PROC_TOKEN", ""), b"")
    except ValueError as error:
        write({"id": number, "result": {"content": [{"type": "text", "text": str(error)}], "isError": True}})
        return
    image = {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"}
    write({"id": number, "result": {"content": [image if done == b"" else {"type": "text", "text": done}]}})


def main(many: int) -> None:
    """Serve until the input ends, with so many tools, or those three."""
    names = [f"deed_{number}" for number in range(many)] or NAMES
    for line in sys.stdin:
        message = json.loads(line)
        number, params = message.get("id"), message.get("params") or {}
        match message.get("method"):
            case "server/discover":
                write({"id": number, "result": {"supportedVersions": ["2026-07-28"], "capabilities": {}}})
            case "tools/list":
                listed = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
                write({"id": number, "result": {"tools": listed}})
            case "tools/call":
                _GONE[number] = threading.Event()
                threading.Thread(target=call, args=(number, params), daemon=True).start()
            case "notifications/cancelled":
                _GONE[params["requestId"]].set()


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 0)
