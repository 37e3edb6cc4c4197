"""The look of ``palaver serve`` at its environment before it starts anything. What is loaded for that goes with the
process that looks: it is not what serves (ADR 0149)."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from api.http.hosts import refuse_open_bind
from palaver.config.policy import load_policy
from palaver.config.providers import load_providers
from palaver.config.settings import Settings, settings
from palaver.errors import ConfigurationError
from palaver.feature import brought
from palaver.steps.policies import load_policies
from palaver.tools import load_tools
from palaver.vocabulary.names import some_of
from workers.children.checking import looked_up
from workers.children.environment import hidden_keys
from workers.steps.capabilities import require_provider

from .ports import Ports
from .provider_table import keys_that_lack
from .redis_server import RedisServerError, find_server

_PROVIDERS: Final = """\
PALAVER_PROVIDERS is not set: name the file that says which models are asked, as PALAVER_PROVIDERS=providers.toml. \
Three lines will do, with the key in OPENAI_API_KEY:

    # providers.toml
    [providers.openai]
    api_key_env = "OPENAI_API_KEY"

`palaver up` plays a model, to try it without one."""


def arguments(workers: int, redis_memory: int | None) -> list[str]:
    """Return the arguments of the program that serves, as this environment has it.

    Raises:
        ConfigurationError: something in it is wrong, or lacks; says what to set.
        SystemExit: a port is none; with a sentence.
    """
    if not os.environ.get("PALAVER_PROVIDERS"):
        raise ConfigurationError(_PROVIDERS)
    here = settings()
    Ports.from_environment(os.environ)
    require_provider(load_providers(here.providers), here.inline_provider_hosts)
    refuse_open_bind(here, here.host)
    load_policies(here.retry_policies)
    load_policy(here.policy)
    for require in brought("required"):
        require(here)
    if here.redis_url is None:
        try:
            find_server()
        except RedisServerError as error:
            raise ConfigurationError(str(error)) from error
    words = [f"--workers={workers}", f"--grace={here.drain_grace}"]
    if redis_memory:
        words.append(f"--redis-memory={redis_memory}")
    for name, variable in keys_that_lack(str(here.providers)).items():
        words.append(f"--line=provider  {variable} is not set: no worker asks {name}. Set it, and start again")
    if here.tool_pool == "processes" and (blocking := blocking_tools(here)):
        named = f"{some_of(blocking)}: not async, so each call has a process of its own (palaver tools)"
        words += ["--blocking", f"--line=tools     {named}"]
    return words


def blocking_tools(here: Settings) -> Sequence[str]:
    """Return the names of the tools that no loop runs: those of PALAVER_TOOLS that are not async, nor inline. The
    modules are imported in a process of its own, which sees what tools may see.

    Raises:
        ConfigurationError: one cannot be imported, or ends its process.
    """
    if not here.tools:
        return []
    if (folder := str(Path.cwd())) not in sys.path:
        # As a worker has it.
        sys.path.insert(0, folder)

    def look() -> str:
        tools = load_tools(here.tools, here.inline_tools)
        return " ".join(sorted(tool.name for tool in tools if not (tool.is_async or tool.inline)))

    return looked_up(here, hidden_keys(here), look).split()
