"""The command as a process of its own: pipes, encodings, Ctrl-C."""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from features.stack.redis_server import RedisServer
from tests.command_line import EVENTS, RUN, RUNS, TURN
from tests.scripted_api import COMPLETED, RUN_ID, Reply, ScriptedAPI, answer, frame, run_object, stream
from tests.waiting import PATIENCE, eventually


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    with ScriptedAPI() as server:
        server.on("POST", RUNS, answer(run_object("queued"), 202))
        server.on("GET", RUN, answer(COMPLETED))
        server.on("GET", EVENTS, stream(*TURN))
        yield server


_FULL = "palaver: standard output: No space left on device.\n"


class Process:
    """The command as a process of its own."""

    def __init__(self, api: ScriptedAPI, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "palaver.cli", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PALAVER_URL": api.url, "PYTHONIOENCODING": "ascii"},
        )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def read_line(self) -> bytes:
        out: IO[bytes] | None = self.process.stdout
        assert out is not None
        return out.readline()

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def interrupt_unseen(self) -> None:
        """SIGINT to a thread that is not the main one: the main one finds it only if something else ends its wait."""
        pid = self.process.pid
        other = next(int(thread) for thread in os.listdir(f"/proc/{pid}/task") if int(thread) != pid)
        assert ctypes.CDLL(None).tgkill(pid, other, signal.SIGINT) == 0

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out.decode(), err.decode()


@pytest.mark.process
class TestProcess:
    def test_json_is_all_there_is_on_stdout(self, api: ScriptedAPI) -> None:
        with Process(api, "run", "hi", "--model", "fake/echo", "--json") as process:
            code, out, err = process.end()
        assert (code, err) == (0, "")
        assert [json.loads(line)["seq"] for line in out.splitlines()] == list(range(1, 18))

    def test_a_terminal_without_the_letters_is_no_reason_to_fail(self, api: ScriptedAPI) -> None:
        with Process(api, "run", "hi", "--model", "fake/echo") as process:
            code, out, _ = process.end()
        assert code == 0
        assert "? calculator" in out

    def test_ctrl_c_cancels_and_goes_on_to_the_end(self, api: ScriptedAPI) -> None:
        api.on("POST", f"{RUN}/cancel", answer(run_object("cancelling"), 202))
        api.on("GET", RUN, answer(run_object("cancelled", stop_reason="cancelled")))
        api.on("GET", EVENTS, stream(*TURN[:8], hang=True), stream(frame(18, "run.finished", status="cancelled")))
        with Process(api, "run", "hi", "--model", "fake/echo", "--json") as process:
            for _ in range(8):
                process.read_line()
            process.interrupt()
            code, out, err = process.end()
        assert code == 130
        assert [json.loads(line)["type"] for line in out.splitlines()] == ["run.finished"]
        assert "Cancelling the run; press Ctrl-C again" in err
        assert api.asked("POST", f"{RUN}/cancel")[0].body == {"mode": "now", "reason": "Ctrl-C"}
        assert api.asked("GET", EVENTS)[1].headers["last-event-id"] == "8"

    def test_the_second_ctrl_c_leaves(self, api: ScriptedAPI) -> None:
        api.on("POST", f"{RUN}/cancel", answer(run_object("cancelling"), 202))
        api.on("GET", EVENTS, stream(*TURN[:1], hang=True), stream(TURN[1], hang=True))
        with Process(api, "run", "hi", "--model", "fake/echo", "--json") as process:
            process.read_line()
            process.interrupt()
            process.read_line()
            process.interrupt()
            code, _, err = process.end()
        assert code == 130
        assert f"Left. `palaver show {RUN_ID}`" in err

    def test_ctrl_c_only_stops_watching(self, api: ScriptedAPI) -> None:
        api.on("GET", EVENTS, stream(*TURN[:1], hang=True))
        with Process(api, "watch", RUN_ID, "--json") as process:
            process.read_line()
            process.interrupt()
            code, _, err = process.end()
        assert code == 130
        assert "The run goes on" in err
        assert not api.asked("POST", f"{RUN}/cancel")

    @pytest.mark.skipif(sys.platform != "linux", reason="aims a signal at a thread, which only Linux has")
    def test_ctrl_c_just_before_a_wait_is_seen_during_it(self, api: ScriptedAPI) -> None:
        api.on("GET", EVENTS, stream(*TURN[:1], hang=True))
        with Process(api, "watch", RUN_ID, "--json") as process:
            process.read_line()
            process.interrupt_unseen()
            code, _, err = process.end()
        assert code == 130
        assert "The run goes on" in err

    def test_ctrl_c_while_submitting_leaves(self, api: ScriptedAPI) -> None:
        api.on("POST", RUNS, Reply(hang=True))
        with Process(api, "run", "hi", "--model", "fake/echo") as process:
            eventually(lambda: api.seen, why="the submission arrives")
            process.interrupt()
            code, out, err = process.end()
        assert (code, out, err) == (130, "", "Interrupted.\n")

    @pytest.mark.skipif(sys.platform == "win32", reason="has no timers")
    def test_no_alarm_outlives_the_command(self) -> None:
        program = (
            "import signal, sys; from palaver.cli import main; sys.argv = ['palaver', '--help']\n"
            "try: main()\n"
            "finally: sys.exit(str(signal.getitimer(signal.ITIMER_REAL)))"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert done.stderr == "(0.0, 0.0)\n"

    @pytest.mark.parametrize(
        "command", ["run hi --model fake/echo", "run hi --model fake/echo --detach", f"watch {RUN_ID}"]
    )
    def test_a_worker_that_is_missing_is_said_at_once(self, api: ScriptedAPI, command: str) -> None:
        waits = run_object("queued", waiting={"reason": "no_worker", "code": "provider:fake"})
        api.on("POST", RUNS, answer(waits, 202))
        api.on("GET", RUN, answer(waits), answer(COMPLETED))
        code, said = _in_a_shell(api, f"{command} >/dev/null")
        assert (code, said) == (0, "… no worker has provider fake: the run goes on as soon as one comes\n")

    @pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
    def test_streams_that_are_closed_are_nothing_to_fail_for(self, api: ScriptedAPI, closed: str) -> None:
        assert _in_a_shell(api, f"run hi --model fake/echo {closed}") == (0, "")

    @pytest.mark.parametrize("command", ["list", "run hi --model fake/echo --json", "--help"])
    def test_a_disk_that_is_full_is_said(self, api: ScriptedAPI, command: str) -> None:
        api.on("GET", RUNS, answer({"data": [COMPLETED], "next": None}))
        assert _in_a_shell(api, f"{command} >/dev/full") == (2, _FULL)

    @pytest.mark.parametrize("program", ["providers", "check", "keys list"])
    def test_so_it_is_of_what_runs_on_a_server(self, api: ScriptedAPI, program: str, tmp_path: Path) -> None:
        (table := tmp_path / "providers.toml").write_text(f'[providers.x]\nbase_url = "{api.url}"\n')
        with RedisServer() as redis:
            served = f"PALAVER_REDIS_URL={redis.url} PALAVER_PROVIDERS={table}"
            assert _in_a_shell(api, f"{program} >/dev/full", served) == (2, _FULL)
            assert _in_a_shell(api, f"{program} 2>&1 | true", served)[1] == ""


def _in_a_shell(api: ScriptedAPI, command: str, variables: str = "") -> tuple[int, str]:
    """The exit code, and what was said on standard error."""
    done = subprocess.run(
        ["/bin/sh", "-c", f"{variables} {shlex.quote(sys.executable)} -m palaver.cli {command}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, "PALAVER_URL": api.url},
        text=True,
        timeout=PATIENCE,
    )
    return done.returncode, done.stderr
