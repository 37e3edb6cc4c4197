"""What a tools worker shows its tools, and how it finds and ends what they started."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from palaver.config.settings import Settings, settings
from palaver.errors import ConfigurationError
from palaver.processes.process_tree import below, children_of
from palaver.secrets.redaction import redact
from tests.processes import gone
from tests.waiting import eventually
from workers.children import environment, processes
from workers.children.slots import ActiveCall, Slots, overdue

pytestmark = pytest.mark.process

HIDDEN = frozenset({"OPENAI_API_KEY"})


@pytest.mark.parametrize(
    ("name", "patterns", "seen"),
    [
        ("PATH", ("*",), True),
        ("OPENAI_API_KEY", ("*",), False),
        ("PALAVER_REDIS_URL", ("*", "PALAVER_*"), False),
        ("PALAVER_URL", ("*", "PALAVER_URL"), True),
        ("OPENAI_API_KEY", ("OPENAI_API_KEY",), True),
        ("PATH", ("HOME", "LC_*"), False),
        ("LC_ALL", ("HOME", "LC_*"), True),
    ],
)
def test_tools_see_what_is_asked_for_and_secrets_only_by_name(name: str, patterns: tuple[str, ...], seen: bool) -> None:
    assert environment.visible(name, patterns, HIDDEN) is seen


def test_keys_are_the_variables_that_providers_name(tmp_path: Path) -> None:
    table = tmp_path / "providers.toml"
    table.write_text('[providers.x]\nbase_url = "http://x/v1"\napi_key_env = "X_KEY"\n')
    assert environment.hidden_keys(Settings(providers=table)) == {"X_KEY", "X_KEY_FILE"}
    table.write_text('[providers.openai]\n[providers.deepseek]\ntimeouts = "none"\n[providers.unheard-of]\n')
    known = {"OPENAI_API_KEY", "OPENAI_API_KEY_FILE", "DEEPSEEK_API_KEY", "DEEPSEEK_API_KEY_FILE"}
    assert environment.hidden_keys(Settings(providers=table)) == known
    assert environment.hidden_keys(Settings()) == frozenset()


def test_keys_are_hidden_though_the_table_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with a key that is not there, an entry that is wrong: the others' keys stay where they are."""
    table = tmp_path / "providers.toml"
    table.write_text(
        '[providers.x]\nbase_url = "http://x/v1"\napi_key_env = "X_KEY"\n[providers.y]\napi_key_env = "Y_KEY"\n'
    )
    monkeypatch.setenv("X_KEY_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("Y_KEY", "sk-0123456789abcdef0456")
    assert environment.hidden_keys(Settings(providers=table)) == {"X_KEY", "X_KEY_FILE", "Y_KEY", "Y_KEY_FILE"}
    assert "sk-0123" not in redact("it said sk-0123456789abcdef0456")


def test_nobody_runs_tools_who_does_not_know_what_to_hide(tmp_path: Path) -> None:
    table = tmp_path / "providers.toml"
    with pytest.raises(ConfigurationError, match="cannot read"):
        environment.hidden_keys(Settings(providers=table))
    table.write_text("[providers")
    with pytest.raises(ConfigurationError, match="is not TOML"):
        environment.hidden_keys(Settings(providers=table))


def test_a_worker_that_starts_itself_anew_has_its_settings_and_no_keys() -> None:
    """What /proc shows of a process is wiped, what it hands on is whole."""
    code = """if True:
        import os, subprocess
        from pathlib import Path
        from workers.children import environment
        environment.forget_keys(frozenset({"X_KEY"}))
        print(Path("/proc/self/environ").read_bytes().decode(), flush=True)
        os.execvp("env", ["env"])
    """
    given = {"PALAVER_REDIS_URL": "redis://secret/0", "PALAVER_API_KEYS": "k" * 20, "X_KEY": "sk-1", "OTHER": "kept"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | given, capture_output=True, text=True, check=True
    )
    shown, handed_on = done.stdout.split("\n", 1)
    assert "OTHER=kept" in shown
    assert not any(secret in shown for secret in ("redis://secret", "k" * 20, "sk-1"))
    assert "PALAVER_REDIS_URL=redis://secret/0" in handed_on
    assert not any(secret in handed_on for secret in ("k" * 20, "sk-1"))
    settings.cache_clear()


def test_a_slot_is_that_of_the_process_that_wrote_it() -> None:
    slots = Slots()
    call = ActiveCall(7, 2, 0.5, 30.0, "weather")
    slots.begin(3, call, time.monotonic() - 1)
    seen = slots.seen(3, os.getpid())
    assert seen is not None
    assert seen.call == call
    assert overdue(seen)
    assert slots.seen(3, os.getpid() + 1) is None
    slots.end(3)
    over = slots.seen(3, os.getpid())
    assert over is not None
    assert not overdue(over)
    assert slots.seen(100_000, os.getpid()) is None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_is_below_a_process_is_found_and_measured() -> None:
    eats = "import sys; eaten = b'x' * (80 << 20); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        ["sh", "-c", f'{sys.executable} -c "{eats}" ; true'], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        (child,) = below(shell.pid)
        assert processes.use_of(shell.pid).memory > 80 << 20
        assert 80 << 20 < processes.memory_of(shell.pid) <= processes.use_of(shell.pid).memory
        assert children_of(child) == []
        processes.kill([shell.pid, child])
    eventually(lambda: gone(child))
    assert processes.use_of(child).memory == 0
