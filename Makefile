# Everything here needs python3 (3.11 or newer) and make; the rest is installed into $(VENV) at first use.
PYTHON ?= python3
VENV ?= .venv
ARGS ?=
HOURS ?= 1
JOBS ?= 6
SCALE ?= 1
# Tests start more than a thousand processes: what one has compiled, the next one reads. Empty is as good as unset.
export PYTHONDONTWRITEBYTECODE :=

BIN := $(VENV)/bin
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
# Files with the hashes that were locked, and nothing that would be built from what has none.
LOCKED := $(PIP_INSTALL) --require-hashes --only-binary :all:
ITSELF := $(BIN)/python $(PIP_INSTALL) --no-deps --no-build-isolation --editable .
TOOLS := $(VENV)/tools
CLIENTS := $(VENV)/clients
DEPLOY := $(VENV)/deploy
SERVERS := $(VENV)/servers
FRAMEWORKS := $(VENV)/frameworks
CANARY := $(VENV)/canary
# Not httpx 1.0, which is another library: palaver stays below it.
NEXT ?= celery kombu redis pydantic httpx<1 starlette uvicorn
DOCS := $(VENV)/docs
# Debian's, by the release that has them: Redis 7.0 and 8.0.
REDIS := $(VENV)/redis/bookworm/redis-server $(VENV)/redis/trixie/redis-server
EMPTY :=
SPACE := $(EMPTY) $(EMPTY)
STACK := $(VENV)/.stack-installed
DEV := $(VENV)/.dev-installed
TWIN := palaver/client/sync/__init__.py

# Each process of a run takes whole files, with a server and a cluster of its own where these need one.
# The last two of six take only what computes, and give way to the others (tests/forks.py).
PYTEST = $(BIN)/python -m pytest --forks $(JOBS)

# Those of the core, and of each feature.
UNITS := tests/unit $(wildcard features/*/tests/unit)
CONTRACT := tests/contract $(wildcard features/*/tests/contract)
CHAOS := PALAVER_CHAOS_SCALE=$(SCALE) $(BIN)/python -m pytest tests/chaos $(UNITS) $(CONTRACT) tests/process tests/openhands -m chaos $(ARGS)
CHAOS_REPORT := .palaver/chaos/$(shell date -u +%Y%m%dT%H%M%S).jsonl

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo up quick test long contract check docs package release check-release canary check-package typescript check-clients check-openai check-referees openhands-clients check-deploy check-frameworks check-servers bench bench-openhands bench-peers chaos soak restarts lock sbom clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "  PYTHON=python3.12 chooses the interpreter, VENV=dir the environment,"
	@echo "  ARGS='…' adds options to demo, quick, test, bench, bench-…, chaos and soak; JOBS=1 runs tests one by one."
	@echo "  SCALE=10 makes ten times as much chaos: faults and runs of each kind."

demo: $(STACK) ## run a real conversation: a retried 429, a killed worker, a cancel
	$(BIN)/python -m deploy.demo $(ARGS)

up: $(STACK) ## start the whole stack and leave it running; Ctrl-C stops it
	$(BIN)/palaver up

# It waits for timers about as long as it computes: two processes for each core. What computes longest is marked slow,
# and left to `make test`.
quick: JOBS = $(shell expr 2 \* $$(getconf _NPROCESSORS_ONLN))
quick: $(DEV) ## run the units that are quick
	$(PYTEST) $(UNITS) -m "not process and not slow and not long and not chaos" --hypothesis-profile=quick $(ARGS)

test: $(DEV) openhands-clients ## run what a release promises: units, the store's contract on a server, whole stacks
	$(PYTEST) -m "not long and not chaos" $(ARGS)

long: $(DEV) openhands-clients ## run the same and the long tier: whole matrices, pages that are followed, rare setups
	$(PYTEST) -m "not chaos" --hypothesis-profile=long $(ARGS)

contract: FILES ?= $(CONTRACT)
contract: $(DEV) ## hold a Redis to the store's contract: the one that PALAVER_TEST_REDIS_SERVER names
	$(PYTEST) $(FILES) -m "process and not chaos" --ignore=tests/contract/test_any_situation.py $(ARGS)

check: $(DEV) ## lint, formatting, types, import contracts, the Lua scripts, names, the pages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports
	$(BIN)/python -m deploy.lua_check
	$(BIN)/python -m deploy.words_check
	$(BIN)/python -m docs.check

docs: $(DOCS)/.installed ## build the pages as a site with a search, in build/site
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --strict --quiet
	@echo "to read it: python3 -m http.server --directory build/site --bind 127.0.0.1 8000"

# It borrows all but these packages from the environment of the tests, as a wheel does there (tests/process/wheels.py).
canary: $(DEV) ## run quick units and a stack on pre-releases; NEXT='celery==5.6.2 kombu<5.7' names other packages
	$(PYTHON) -m venv --clear --without-pip $(CANARY)
	$(BIN)/python -m deploy.canary $(CANARY)
	PIP_PYTHON=$(CANARY)/bin/python $(BIN)/python $(PIP_INSTALL) --pre --upgrade --only-binary :all: $(foreach each,$(NEXT),'$(each)')
	$(CANARY)/bin/python -m deploy.canary
	$(CANARY)/bin/python -m pytest --forks $(JOBS) $(UNITS) -m "not process and not slow and not long and not chaos" --hypothesis-profile=quick $(ARGS)
	$(CANARY)/bin/python -m pytest tests/process/test_running.py -m "process and not chaos" $(ARGS)

package: $(STACK) ## build the sdist, and the wheel of it, into dist/
	rm -rf dist/palaver-*
	$(BIN)/python -m hatchling build --target sdist
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist dist/palaver-*.tar.gz
	@ls dist/palaver-*

check-package: $(DEV) ## install the wheel with all that it needs into an empty environment, and run it
	$(BIN)/python -m pytest tests/process/test_wheel.py -m "chaos or not chaos" $(ARGS)

release: export SOURCE_DATE_EPOCH = $(shell git log -1 --format=%ct)
release: $(STACK) $(TOOLS)/.installed ## build all of a release into dist/, from a commit (needs git, and npm as below)
	$(BIN)/python -m deploy.release check
	rm -rf dist
	$(MAKE) --no-print-directory package typescript sbom
	$(BIN)/python -m deploy.release finish
	@cat dist/SHA256SUMS

check-release: $(DEV) $(DEPLOY)/.installed ## use each file of dist/ from an empty place
	$(BIN)/python -m deploy.release_check $(ARGS)

typescript: $(STACK) ## make the package of the client for TypeScript, in dist/ (needs Node.js 20 or newer)
	$(BIN)/python -m deploy.openapi > clients/typescript/openapi.json
	cd clients/typescript && npm ci --ignore-scripts --no-audit --no-fund && npm run build
	@mkdir -p dist
	cd clients/typescript && npm pack --ignore-scripts --pack-destination ../../dist

check-clients: $(DEV) $(CLIENTS)/.installed ## run clients made from the API's document, those of chat kits, and the examples
	$(BIN)/python -m pytest --forks 2 tests/process/test_generated_clients.py tests/process/test_ai_sdk_client.py tests/process/test_ag_ui_client.py tests/process/test_chat_pages.py tests/process/test_example_pages.py tests/process/test_fastapi_example.py tests/process/test_openai_in_a_browser.py tests/process/test_console_accessibility.py -m chaos $(ARGS)

check-openai: $(DEV) $(CLIENTS)/.installed ## run five versions of OpenAI's client, loose and strict, and that for Node.js
	$(BIN)/python -m tests.openai_clients.install
	$(BIN)/python -m pytest tests/process/test_openai_versions.py -m chaos $(ARGS)

check-referees: $(DEV) $(CLIENTS)/.installed ## hold Palaver to suites that others wrote (docs/why/referees.md)
	$(BIN)/python -m tests.referees.install
	$(BIN)/python -m pytest tests/referees -m chaos $(ARGS)

openhands-clients: | $(BIN)/pip ## install OpenHands' own clients, which the tests run against its dialect
	$(BIN)/python -m tests.openhands.install

check-deploy: $(DEV) $(DEPLOY)/.installed ## check the image, compose file, chart and units, without Docker or Kubernetes
	$(BIN)/python -m deploy.check $(ARGS)

check-frameworks: $(DEV) $(FRAMEWORKS)/.installed ## call tools of LangChain, pydantic-ai and the OpenAI Agents SDK
	$(BIN)/python -m pytest tests/frameworks $(ARGS)

check-servers: $(DEV) $(SERVERS)/.installed ## run against servers that others wrote: LiteLLM, behind and in front, and llama.cpp's
	$(BIN)/python -m pytest tests/real_servers -m chaos $(ARGS)

bench: $(DEV) ## measure this machine, and then beside others unless ARGS has --only
	$(BIN)/python -m bench $(ARGS)
	$(if $(findstring --only,$(ARGS)),,$(MAKE) bench-peers ARGS=$(filter --quick,$(ARGS)))

bench-peers: $(DEV) ## measure beside Celery alone, Restate, DBOS and LangGraph
	$(BIN)/python -m bench.peers.install
	$(BIN)/python -m bench.peers $(ARGS)

bench-openhands: $(DEV) ## measure beside OpenHands' agent-server (needs Python 3.12 or 3.13)
	$(BIN)/python -m bench.openhands.install
	$(BIN)/python -m bench.openhands $(ARGS)

chaos: $(DEV) openhands-clients ## kill, pause and partition things for a while
	$(BIN)/python -m pytest $(UNITS) $(CONTRACT) --hypothesis-profile=default
	@mkdir -p .palaver/chaos
	@export PALAVER_CHAOS_REPORT=$(CHAOS_REPORT); \
	$(CHAOS); status=$$?; $(BIN)/python -m tests.chaos.report $$PALAVER_CHAOS_REPORT; exit $$status

soak: $(DEV) ## repeat the chaos with new seeds for HOURS=n, until something does not hold
	@mkdir -p .palaver/chaos
	@export PALAVER_CHAOS_REPORT=$(CHAOS_REPORT); \
	status=0; end=$$(awk 'BEGIN { srand(); print int(srand() + 3600 * $(HOURS)) }'); \
	while [ $$status = 0 ] && [ $$(date +%s) -lt $$end ]; do \
	  PALAVER_CHAOS_SEED=$$(awk 'BEGIN { srand(); print 1 + int(rand() * 1073741823) }'); \
	  export PALAVER_CHAOS_SEED; echo "PALAVER_CHAOS_SEED=$$PALAVER_CHAOS_SEED"; $(CHAOS) -x || status=$$?; \
	done; $(BIN)/python -m tests.chaos.report $$PALAVER_CHAOS_REPORT; exit $$status

restarts: SCALE = 3
restarts: $(DEV) $(REDIS) ## hold Redis 7.0 and 8.0 to the contract; end them and Valkey 210 times each under 50 runs
	for server in $(abspath $(REDIS)); do \
	  PALAVER_TEST_REDIS_SERVER=$$server $(MAKE) --no-print-directory contract ARGS= || exit; done
	PALAVER_CHAOS_SCALE=$(SCALE) PALAVER_TEST_REDIS_SERVERS=$(subst $(SPACE),:,$(abspath $(REDIS))) \
	  $(BIN)/python -m pytest tests/process/test_restarts.py -m "chaos or not chaos" -v $(ARGS)

lock: $(TOOLS)/.installed ## renew constraints*.txt from pyproject.toml; ARGS=--upgrade takes the newest
	PATH="$(abspath $(TOOLS))/bin:$$PATH" $(BIN)/python -m deploy.lock $(ARGS)

sbom: $(TOOLS)/.installed ## list the parts of a server in dist/sbom.cdx.json
	@mkdir -p dist
	$(PYTHON) -m venv --clear $(VENV)/sbom
	$(VENV)/sbom/bin/python $(LOCKED) --requirement constraints.txt
	$(TOOLS)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
	  --output-format JSON --output-file dist/sbom.cdx.json $(VENV)/sbom/bin/python
	rm -rf $(VENV)/sbom

clean: ## remove caches, builds and the data of `make up` (keeps the environment)
	rm -rf .palaver build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +

# pip is the last thing venv puts there: an environment that was only half made is made again.
$(BIN)/pip:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "Palaver needs Python 3.11 or newer, but there is no '$(PYTHON)'." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Palaver needs Python 3.11 or newer, but '$(PYTHON)' is $$($(PYTHON) --version 2>&1)."; \
	  echo "Name another one: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; } >&2
	$(PYTHON) -m venv $(VENV)

# The blocking client is made from the one on asyncio, again when that has changed.
$(TWIN): deploy/twin.py $(wildcard palaver/client/aio/*.py) | $(BIN)/pip
	$(BIN)/python -m deploy.twin

$(STACK): pyproject.toml palaver/version.py constraints.txt | $(BIN)/pip $(TWIN)
	@echo "installing Palaver and its server into $(VENV) (once, about a minute)"
	$(BIN)/python $(LOCKED) --requirement constraints.txt
	$(ITSELF)
	@touch $@

$(DEV): pyproject.toml palaver/version.py constraints.txt constraints-dev.txt | $(BIN)/pip $(TWIN)
	@echo "installing Palaver and its development tools into $(VENV) (once, about a minute)"
	$(BIN)/python $(LOCKED) --requirement constraints.txt --requirement constraints-dev.txt
	$(ITSELF)
	@touch $@ $(STACK)

# Of these packages little is imported: to compile them all is half of an installation. (For pip, 0 says so.) Two have no
# pip of their own, to make which takes five seconds of processor time: that of the tests installs into PIP_PYTHON's.
$(CLIENTS)/.installed $(DEPLOY)/.installed $(FRAMEWORKS)/.installed: export PIP_NO_COMPILE := 0

$(CLIENTS)/.installed: constraints-clients.txt | $(BIN)/pip
	$(PYTHON) -m venv --clear --without-pip $(CLIENTS)
	PIP_PYTHON=$(CLIENTS)/bin/python $(BIN)/python $(LOCKED) --requirement constraints-clients.txt
	@touch $@

$(FRAMEWORKS)/.installed: constraints-frameworks.txt | $(STACK)
	$(PYTHON) -m venv --clear $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/python $(LOCKED) --requirement constraints-frameworks.txt
	@touch $@

# As constraints, too: a requirement with an extra, such as pydantic[email], is else taken for one of any version.
$(SERVERS)/.installed: constraints-servers.txt | $(STACK)
	@echo "installing LiteLLM and llama.cpp into $(SERVERS) (once, 750 MB)"
	$(PYTHON) -m venv --clear $(SERVERS)
	$(SERVERS)/bin/python $(LOCKED) --requirement constraints-servers.txt --constraint constraints-servers.txt
	@touch $@

$(REDIS): .ci/redis
	@echo "unpacking Redis of Debian's $(notdir $(@D)) into $(@D)"
	rm -rf $(@D)
	.ci/redis $(abspath $(@D)) $(notdir $(@D))

$(TOOLS)/.installed: constraints-tools.txt | $(STACK)
	$(PYTHON) -m venv --clear $(TOOLS)
	$(TOOLS)/bin/python $(LOCKED) --requirement constraints-tools.txt
	@touch $@

$(DOCS)/.installed: constraints-docs.txt | $(STACK)
	$(PYTHON) -m venv --clear $(DOCS)
	$(DOCS)/bin/python $(LOCKED) --requirement constraints-docs.txt
	@touch $@

$(DEPLOY)/.installed: constraints-deploy.txt | $(BIN)/pip
	@echo "installing what checks the deploy kit into $(DEPLOY) (once, 100 MB)"
	$(PYTHON) -m venv --clear --without-pip $(DEPLOY)
	PIP_PYTHON=$(DEPLOY)/bin/python $(BIN)/python $(LOCKED) --no-deps --requirement constraints-deploy.txt
	@touch $@
