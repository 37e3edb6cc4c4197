"""The rules of planned work: said by an API, and what a worker that was started with others goes by."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

from palaver.config.policy import OperatorPolicy
from palaver.config.presets import PRESETS
from palaver.config.providers import Provider, load_providers
from palaver.config.settings import ApiKey
from palaver.operations import Backend
from palaver.operations.planning_rules import PlanningBackend, rules_of
from palaver.steps.retry import RetryPolicy
from tests.unit.api_world import SETTINGS, World, world

API_KEY = "a-key-of-the-api-0123456789"
PASSWORD = "a-password-of-an-endpoint"
PROVIDER_KEY = "sk-a-key-of-a-provider"


@pytest.fixture
async def api() -> AsyncIterator[World]:
    async with world() as made:
        yield made


@pytest.fixture
def backend(api: World, monkeypatch: pytest.MonkeyPatch) -> Backend:
    """That of an API with rules of every kind."""
    monkeypatch.setenv("SOME_KEY", PROVIDER_KEY)
    found: Backend = api.app.state.backend
    keys = (ApiKey(SecretStr(API_KEY), "ann"), ApiKey(SecretStr(f"{API_KEY}-2")))
    return replace(
        found,
        settings=SETTINGS.model_copy(
            update={"api_keys": keys, "max_runs": 7, "inline_mcp_hosts": ("tools.example.com",)}
        ),
        policy=OperatorPolicy.model_validate(
            {"rules": {"all": {"approvals": {"require": ["pay_*"], "approver": "other"}, "max_steps": 5}}}
        ),
        policies={"patient": RetryPolicy.parse({"patience": 60, "rules": {"timeout": {"attempts": 3}}})},
        providers={
            "keyed": Provider(
                base_url="https://api.example.com/v1",
                api_key_env="SOME_KEY",
                prices={"*": {"input": 1.0, "output": 2.0}},
                models=("large",),
            ),
            "login": Provider(base_url=f"https://me:{PASSWORD}@inner.example.com/v1"),
        },
    )


@pytest.fixture
async def worker(api: World) -> AsyncIterator[PlanningBackend]:
    """What a worker has, which was started with nothing of that."""
    made = PlanningBackend(api.app.state.backend.store, SETTINGS, api.app.state.backend.publisher)
    yield made
    await made.close()


async def test_a_worker_goes_by_the_rules_of_the_api(backend: Backend, worker: PlanningBackend) -> None:
    assert await worker.now() is None
    await backend.store.planning.keep_rules(rules_of(backend))
    found = await worker.now()
    assert found is not None
    assert found.policy == backend.policy
    assert found.policies == backend.policies
    assert (found.settings.max_runs, found.settings.inline_mcp_hosts) == (7, ("tools.example.com",))
    assert [key.name for key in found.settings.api_keys] == ["ann", None]
    assert found.settings.keyed
    assert found.providers.keys() == backend.providers.keys()
    assert found.providers["keyed"].prices == backend.providers["keyed"].prices
    assert found.providers["keyed"].models == ("large",)
    assert await worker.now() is found


async def test_rules_of_an_older_api_are_read(backend: Backend, worker: PlanningBackend) -> None:
    rules = orjson.loads(rules_of(backend))
    rules["retry"]["patient"]["tools"] = {"attempts": 2}
    await backend.store.planning.keep_rules(orjson.dumps(rules))
    found = await worker.now()
    assert found is not None
    assert found.policies == backend.policies


async def test_rules_that_change_are_other_rules(backend: Backend, worker: PlanningBackend) -> None:
    await backend.store.planning.keep_rules(rules_of(backend))
    first = await worker.now()
    # An API that has not changed does not take back what a newer one says.
    await backend.store.planning.keep_rules(rules_of(replace(backend, policies={})))
    await backend.store.planning.keep_rules(rules_of(backend), again=True)
    second = await worker.now()
    assert first is not None
    assert second is not None
    assert (list(first.policies), list(second.policies)) == (["patient"], [])


def test_no_secret_is_in_them(backend: Backend) -> None:
    text = rules_of(backend).decode()
    for secret in (API_KEY, PASSWORD, PROVIDER_KEY, "SOME_KEY"):
        assert secret not in text
    assert "inner.example.com/v1" in text


@pytest.mark.parametrize("text", [b"[]", b"{", b'{"settings": {}}'])
async def test_rules_of_a_newer_version_are_left_to_it(
    backend: Backend, worker: PlanningBackend, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await backend.store.planning.keep_rules(text)
    assert await worker.now() is None
    assert await worker.now() is None
    assert caplog.text.count("cannot be read here") == 1


def test_every_provider_that_is_known_by_name_can_be_said(backend: Backend, tmp_path: Any) -> None:
    table = tmp_path / "providers.toml"
    known = [name for name, preset in PRESETS.items() if preset.base_url is not None]
    table.write_text("".join(f'[providers."{name}"]\n' for name in known))
    said = rules_of(replace(backend, providers=load_providers(table)))
    for name in known:
        assert f'"{name}"' in said.decode()


@pytest.mark.process
def test_a_worker_loads_no_use_cases_until_something_is_planned() -> None:
    program = "import sys, workers.loops.keeper; print([name for name in sys.modules if 'operations' in name])"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"
