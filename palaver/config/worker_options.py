"""The options of `palaver worker` and `palaver tools`: those of Celery's worker that do good here, and their help."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final, NoReturn

from palaver.config.exits import EX_USAGE, refuse

_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_ABOUT: Final = {
    "worker": "Do model steps: ask models, many at once on one loop; with --tools tool steps as well.",
    "tools": "Do tool steps: run the functions of PALAVER_TOOLS, each call in a process that can be ended.",
}
_ELSEWHERE: Final = """\
Everything else is a variable of the environment: PALAVER_REDIS_URL, PALAVER_PROVIDERS, PALAVER_TOOLS and others
(docs/reference/settings.md). SIGTERM ends it: what is under way has PALAVER_DRAIN_GRACE seconds, and the rest goes to
other workers.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        refuse(f"{self.prog}: {message}; `{self.prog} --help` lists its options", EX_USAGE)


def check_options(role: str, arguments: Sequence[str]) -> None:
    """Raise SystemExit for options that a worker of this role has not, with a sentence, or for its help, with that."""
    prog = f"palaver {role}"
    parser = _Parser(
        prog,
        description=_ABOUT[role],
        epilog=_ELSEWHERE,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    at_once = "steps at once [500]" if role == "worker" else "calls at once [4; 100 with PALAVER_TOOL_POOL=loop]"
    parser.add_argument("-c", "--concurrency", type=_count, metavar="N", help=at_once)
    parser.add_argument("-n", "--hostname", metavar="NAME@%h", help="its name, another one for each worker")
    parser.add_argument("-l", "--loglevel", type=str.upper, choices=_LEVELS, metavar="LEVEL", help="[INFO]")
    parser.add_argument("-f", "--logfile", metavar="FILE", help="where to log [standard error]")
    if role == "worker":
        also = "run the async functions of PALAVER_TOOLS as well, on the same loop: a run goes on where it is"
        parser.add_argument("--tools", action="store_true", help=also)
        of = "the queues that it takes from, by commas: those of tools with --tools alone [model, or model,tools]"
        parser.add_argument("-Q", "--queues", metavar="QUEUE", help=of)
    else:
        of = "the queues that it takes from, as tools name them, by commas: @tool(queue=…) [tools]"
        parser.add_argument("-Q", "--queues", metavar="QUEUE", help=of)
        ends = "calls after which a process for tools makes room for a new one [no end]"
        parser.add_argument("--max-tasks-per-child", type=_count, metavar="N", help=ends)
    given = parser.parse_args(arguments)
    if given.queues is not None:
        _check_queues(role, given.queues, tools=role == "tools" or given.tools)


def _check_queues(role: str, text: str, *, tools: bool) -> None:
    # Only here: with it comes pydantic, and the program that this process becomes loads it again.
    from palaver.vocabulary.limits import limit_of
    from palaver.vocabulary.step_kinds import KIND_OF, MODEL, TOOL, is_own_queue

    queues = text.split(",")
    if not tools:
        if text not in KIND_OF or text == TOOL.queue:
            how = f"but from {MODEL.queue!r}; with --tools from queues of tools, too"
            refuse(f"palaver worker takes from no queue {text[:80]!r}, {how}", EX_USAGE)
        return
    if role == "worker" and MODEL.queue not in queues:
        refuse(f"palaver worker --tools takes from {MODEL.queue!r}: for tools alone there is palaver tools", EX_USAGE)
    if role == "worker" and set(queues) == {MODEL.queue}:
        how = f"name queues of tools, too, as in -Q {MODEL.queue},{TOOL.queue}"
        refuse(f"palaver worker --tools would run no tool: {how}", EX_USAGE)
    for queue in queues:
        if queue != TOOL.queue and not is_own_queue(queue) and not (role == "worker" and queue == MODEL.queue):
            how = f"a tool names it, as in @tool(queue='gpu'), or it is {TOOL.queue!r}"
            refuse(f"palaver {role} takes from no queue {queue[:80]!r}: {how}", EX_USAGE)
    if len(queues) > limit_of("tool_queues"):
        refuse(f"palaver {role} takes from {limit_of('tool_queues')} queues at most", EX_USAGE)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 1_000_000):
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is no number from 1 on")
    return int(text)
