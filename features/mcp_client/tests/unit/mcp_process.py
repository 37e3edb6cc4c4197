"""A server of the Model Context Protocol on standard input and output, in one of the ways in which they behave.

It imports nothing that takes time. Its arguments are the behaviour, and a file to which it adds a line for each message
that it gets and for each of its own lives.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any


def write(message: Any) -> None:
    """Send a message."""
    sys.stdout.write(message if isinstance(message, str) else json.dumps(message))
    sys.stdout.write("\n")
    sys.stdout.flush()


def main(behaviour: str, journal: str) -> None:
    """Serve until the input ends."""

    def note(line: str) -> None:
        with open(journal, "a") as file:
            file.write(f"{line}\n")

    note(f"life {os.getpid()}")
    if behaviour == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        message = json.loads(line)
        method, number = message.get("method"), message.get("id")
        params = message.get("params") or {}
        note(f"{method} {params.get('name', '')}".strip())
        if behaviour == "noisy":
            write("INFO: something happened")
            sys.stderr.write("x" * 100_000)
        if method == "server/discover":
            if behaviour == "silent":
                continue
            if behaviour == "brittle":
                sys.exit(1)
            if behaviour != "modern":
                write({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "Method not found"}})
                continue
            result: Any = {"supportedVersions": ["2026-07-28"], "capabilities": {}}
        elif method == "initialize":
            result = {"protocolVersion": params["protocolVersion"], "capabilities": {}, "serverInfo": {"name": "p"}}
            if behaviour == "foreign":
                result["protocolVersion"] = "1999-01-01"
        elif method == "tools/list":
            names = ("echo", "fail", "env", "wait", "die", "flood", "noise", "ask", "pings", "cwd")
            result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
        elif method == "tools/call":
            result = called(params["name"], params.get("arguments") or {}, number, params.get("_meta", {}))
        else:
            continue
        if result is not None:
            write({"jsonrpc": "2.0", "id": number, "result": result})
    while behaviour == "deaf":
        time.sleep(1)


def called(name: str, arguments: dict[str, Any], number: int, meta: dict[str, Any]) -> Any:
    """The result of a call; None for none."""
    text = json.dumps(arguments)
    if name == "env":
        text = json.dumps(dict(os.environ))
    elif name == "fail":
        return {"content": [{"type": "text", "text": "no such city"}], "isError": True}
    elif name == "cwd":
        text = os.getcwd()
    elif name == "wait":
        params = {"progressToken": meta.get("progressToken"), "progress": 1, "total": 4}
        write({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        return None
    elif name == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif name == "flood":
        write("x" * (17 << 20))
    elif name == "noise":
        for _ in range(2_000):
            write("no message")
    elif name == "pings":
        for ping in range(20_000):
            write({"jsonrpc": "2.0", "id": f"p{ping}", "method": "ping"})
    elif name == "ask":
        write({"jsonrpc": "2.0", "id": "q", "method": "ping"})
        answer = json.loads(sys.stdin.readline())
        text = json.dumps(answer)
    return {"content": [{"type": "text", "text": text}]}


if __name__ == "__main__":
    main(*sys.argv[1:])
