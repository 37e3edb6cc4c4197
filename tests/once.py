"""What processes of tests compute again for each connection or each sibling, and need once."""

from __future__ import annotations

from functools import cache

from redis import utils

from palaver import feature
from palaver.config.settings import Settings
from palaver.store.scripting import additions, scripts
from palaver.store.scripting.shared_names import ScriptSettings


def know_the_version_of_redis() -> None:
    """From here on this process and its forks read once which redis-py they have, and not for each connection: that
    looks through all that is installed."""
    utils.get_lib_version = cache(utils.get_lib_version)


def forget_switches() -> None:
    """Have the variables that switch features on read again, and scripts made with the parts of these."""
    for known in (feature.is_set, additions.all_hooks, additions.all_lua_files, scripts._sources):
        known.cache_clear()


def assemble_scripts(settings: Settings) -> None:
    """Make the scripts that processes with these settings have, for all that are forked from this one."""
    for sends in (False, True):
        dict(scripts._sources(ScriptSettings.of(settings, sends=sends), scripts.VERSION))
