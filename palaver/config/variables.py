"""The variables of the environment that Palaver reads, and the sentences about those that only look so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Final

from palaver.config.secret_files import SUFFIX
from palaver.config.settings import SECRET, Settings
from palaver.feature import features
from palaver.vocabulary.names import did_you_mean

PREFIX: Final = "PALAVER_"
DIALECTS: Final = "palaver.dialects"
"""The group of entry points by which dialects of the API are found; each has variables of its own, PALAVER_<NAME>_…"""
OTHERS: Final[Mapping[str, str]] = {
    "PALAVER_FEATURES": "every process",
    "PALAVER_URL": "the SDK and the command line",
    "PALAVER_API_KEY": "the SDK and the command line",
    "PALAVER_API_PORT": "`palaver api`, `palaver up` and `palaver serve`",
    "PALAVER_FLOWER_PORT": "`palaver flower` and `palaver up`",
    "PALAVER_IMAGE": "deploy/compose.yaml",
    "PALAVER_REDIS_IMAGE": "deploy/compose.yaml",
    "PALAVER_TOOL_QUEUE": "deploy/compose.yaml",
    "PALAVER_TOOL_QUEUE_AT_ONCE": "deploy/compose.yaml",
    "PALAVER_DEPLOY_TOOLS": "make check-deploy",
    "PALAVER_FAILPOINTS": "tests",
    "PALAVER_FAILPOINTS_LEDGER": "tests",
    "PALAVER_TEST_ACL": "tests",
    "PALAVER_TEST_BROKER": "tests",
    "PALAVER_TEST_POSTGRES": "tests",
    "PALAVER_TEST_STORE": "tests",
    "PALAVER_TEST_REDIS_SERVER": "tests",
    "PALAVER_TEST_REDIS_SERVERS": "tests",
    "PALAVER_CHAOS_REPORT": "tests",
    "PALAVER_CHAOS_SCALE": "tests",
    "PALAVER_CHAOS_SEED": "tests",
    "PALAVER_CI_DATA_DIR": "CI",
}
"""Variables of the core that are no `Settings`, and who reads them."""

_SERVICE_LINK: Final = re.compile(r".*_(SERVICE_(HOST|PORT)(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
"""Matches the variables that Kubernetes sets in every container for a service that is named ``palaver-…``."""


def variables() -> frozenset[str]:
    """Return every variable of the environment that anything in Palaver reads."""
    files = (PREFIX + name.upper() + SUFFIX for name in SECRET)
    theirs = (name for feature in features().values() for name in feature.variables)
    return frozenset(PREFIX + name.upper() for name in Settings.model_fields).union(OTHERS, files, theirs)


def unread(environment: Mapping[str, str], own: frozenset[str] = frozenset()) -> list[str]:
    """Return a sentence for each variable that is named like ours and that is not read. ``own`` are the users' own:
    those that hold keys of providers, and those that tools may see. Dialects of the API read theirs themselves."""
    known = variables()
    names = sorted(name for name in environment if name.startswith(PREFIX) and name not in known | own)
    if names:
        theirs = tuple(f"{PREFIX}{dialect.name.upper()}_" for dialect in entry_points(group=DIALECTS))
        names = [name for name in names if not name.startswith(theirs)]
    return [
        f"{name} is no variable that Palaver reads{did_you_mean(name, known)}"
        for name in names
        if not _SERVICE_LINK.fullmatch(name) and not environment[name].startswith(("tcp://", "udp://", "sctp://"))
    ]
