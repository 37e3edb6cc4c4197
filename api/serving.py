"""The start of the API: its options, its environment, its sockets."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Mapping
from logging.config import dictConfig
from typing import Final

import uvicorn
from uvicorn.config import LOG_LEVELS

from palaver.config.brokers import tls_options
from palaver.config.exits import refusing
from palaver.config.policy import load_policy
from palaver.config.providers import load_providers
from palaver.config.roles import port_number, require_port
from palaver.config.settings import settings
from palaver.config.variables import unread
from palaver.processes.garbage import spare_loaded
from palaver.steps.policies import load_policies
from palaver.telemetry.logs import serve_json
from palaver.telemetry.traces import Tracing
from palaver.vocabulary.limits import limit_of

from .app import ApiApplication, create_app, require_redis
from .edge.descriptors import PacedListener
from .edge.gate import process_gate
from .edge.http11 import Http11
from .edge.listening import LosslessServer, handed_over
from .http.access_log import ACCESS
from .http.hosts import refuse_open_bind
from .http.logs import configuration

log = logging.getLogger("palaver.api")
_uvicorn_log = logging.getLogger("uvicorn.error")

_BACKLOG: Final = 2048
_KEEP_ALIVE: Final = 65
"""Seconds for which an idle connection stays open: longer than clients (httpx: 5) and proxies (mostly 60) keep theirs.
Who closes first may do so while a request is on its way, which is then lost."""
_FRAME: Final = limit_of("socket_frame")


def main() -> None:
    """Serve until a signal ends it. Options that the command line leaves out come from the environment."""
    words = argparse.ArgumentParser(prog="palaver api", description="Serve Palaver's API.")
    words.add_argument("--host", default=os.environ.get("PALAVER_HOST") or "127.0.0.1", help="default: PALAVER_HOST")
    words.add_argument("--port", default=os.environ.get("PALAVER_API_PORT") or "8080", help="default: PALAVER_API_PORT")
    words.add_argument("--log-level", choices=("critical", "error", "warning", "info", "debug", "trace"))
    words.add_argument(
        "--root-path", type=_root_path, default="", help="what a proxy takes off the beginning of the path"
    )
    options = words.parse_args()
    serve_json()
    port = port_number(options.port, "--port or PALAVER_API_PORT")
    with refusing():
        listeners = handed_over()
        app = _app({each.getsockname()[0]: "ListenStream" for each in listeners} or {options.host: "PALAVER_HOST"})
    if not listeners:
        require_port(options.host, port, "PALAVER_API_PORT")
    config = uvicorn.Config(
        app,
        host=options.host,
        port=port,
        http=Http11,
        ws="websockets-sansio",
        ws_max_size=_FRAME,
        ws_per_message_deflate=False,
        log_config=None,
        log_level=options.log_level,
        access_log=False,
        root_path=options.root_path,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE,
    )
    if options.log_level:
        ACCESS.setLevel(LOG_LEVELS[options.log_level])
    config.load()
    spare_loaded()
    server = LosslessServer(config)
    for each in listeners:
        host, number = each.getsockname()[:2]
        # Where uvicorn names the address that it has bound.
        _uvicorn_log.info("Handed over: %s port %d. --host and --port do not count.", host, number)
    # By its number: so Python finds out that it is TCP. asyncio turns Nagle's algorithm off for such only, and with it
    # a head waits 40 ms for its body.
    server.run(sockets=[*listeners] or [PacedListener(fileno=config.bind_socket().detach())])
    if not server.started:
        sys.exit(3)


def _root_path(text: str) -> str:
    path = text.rstrip("/")
    if path and not path.startswith("/"):
        raise argparse.ArgumentTypeError(f"{text!r} must begin with a /, such as /agents/palaver")
    return path


def _app(hosts: Mapping[str, str]) -> ApiApplication:
    """Return the application that listens at ``hosts``, each named by a setting, once its environment was looked at.

    Raises:
        ConfigurationError: it could not serve.
    """
    here = settings()
    # Not left to uvicorn: what follows has something to say.
    dictConfig(configuration(here.log_format))
    logging.captureWarnings(True)
    providers, policies = load_providers(here.providers), load_policies(here.retry_policies)
    policy = load_policy(here.policy)
    own = frozenset(provider.api_key_env or "" for provider in providers.values()).union(here.tool_env)
    for sentence in unread(os.environ, own):
        log.warning("%s", sentence)
    process_gate()
    for host, setting in hosts.items():
        refuse_open_bind(here, host, setting)
    tls_options(here.deliveries_url)
    Tracing.of(os.environ)
    require_redis(here)
    return create_app(here, providers=providers, policies=policies, policy=policy)
