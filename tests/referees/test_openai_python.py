"""llm-comply and frameworks in Python at a real stack; llm-comply at the fake provider, too."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from features.fake_provider.server import FakeProvider
from tests.process.cluster import Cluster
from tests.referees.openai_agents import served
from tests.referees.openai_python import PACKAGES
from tests.referees.page import passed, stated

pytestmark = [pytest.mark.process, pytest.mark.chaos]

MODELS: Final = {
    "openai-chat": "as-o1+reasoning+tool-1",
    # Of a stream of thoughts it knows other names of events than OpenAI has.
    "open-responses": "as-o1+tool-1",
    "anthropic": "as-claude-opus+reasoning+tool-1",
}
"""By the name of a model it sees whether it thinks."""
_HEADERS: Final = ("--auth-header", "x-api-key", "--no-bearer", "-H", "anthropic-version:2023-06-01")


def comply(form: str, url: str, model: str) -> dict[str, Any]:
    """What llm-comply finds: its results by the ids of its tests."""
    program = Path(PACKAGES.python()).with_name("llm-comply")
    command = [str(program), "--json", "--format", form, "-u", url, "-k", "any", "-m", model]
    done = subprocess.run(
        [*command, *(_HEADERS if form == "anthropic" else ())], capture_output=True, text=True, timeout=180
    )
    results = json.loads(done.stdout)["results"]
    return {each["id"]: each for each in results}


def hold(suite: str, found: dict[str, Any]) -> None:
    """Hold what was found to what the page says of a suite."""
    failed = {name: each for name, each in found.items() if each["status"] != "passed"}
    assert failed.keys() == stated(suite).keys(), failed
    assert passed(suite) == f"{len(found) - len(failed)} of {len(found)}"


@pytest.mark.parametrize("form", ["openai-chat", "open-responses"])
def test_llm_comply(cluster: Cluster, form: str) -> None:
    with served(cluster) as url:
        hold(f"llm-comply, {form}", comply(form, url, f"fake/{MODELS[form]}"))


@pytest.mark.parametrize("form", MODELS)
def test_llm_comply_at_the_fake_provider(form: str) -> None:
    with FakeProvider.running() as provider:
        hold(f"llm-comply on `fake`, {form}", comply(form, provider.base_url, MODELS[form]))


def test_frameworks(cluster: Cluster) -> None:
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with served(cluster) as url:
        command = [PACKAGES.python(), str(PACKAGES.source / "driver.py"), url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=400, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    for suite in ("openai-agents", "pydantic-ai", "LiteLLM"):
        its = {name: why for name, why in found.items() if name.startswith(suite)}
        failed = {name: why for name, why in its.items() if why is not None}
        assert failed.keys() == stated(suite).keys(), failed
        assert passed(suite) == f"{len(its) - len(failed)} of {len(its)}"
