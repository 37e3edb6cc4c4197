"""The plugin in a plain pytest, from a folder with nothing but the tests of a team."""

from __future__ import annotations

import re
import resource

import pytest

from tests.pages import ROOT, blocks

pytest_plugins = "pytester"
pytestmark = pytest.mark.process

REFUND = '''
def refund(order: int) -> str:
    """Pay an order back."""
    return f"refunded {order}"
'''


def outcomes_of(pytester: pytest.Pytester, text: str, *options: str, **expected: int) -> str:
    """Run a module of tests, see that it comes to this, and return what is printed."""
    pytester.makepyfile(text)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error")
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:valkey", *options)
    done.assert_outcomes(**expected)
    return done.stdout.str()


def test_the_fixture_is_there(pytester: pytest.Pytester) -> None:
    text = f"""{REFUND}
def test_a_refund_is_made_once(palaver_runs):
    palaver_runs.model.calls("refund", order=4711).says("Done.")
    run = palaver_runs.run("refund 4711", tools=[refund])
    assert run.status == "completed" and run.output == "Done."
    assert run.calls("refund") == [{{"order": 4711}}]
"""
    outcomes_of(pytester, text, passed=1)


def test_the_tests_of_the_page_pass(pytester: pytest.Pytester) -> None:
    page = ROOT / "docs" / "how-to" / "your-tests.md"
    (text,) = [code for kind, code in blocks(page) if kind == "python" and code.startswith("# test_refunds.py")]
    outcomes_of(pytester, text, passed=3)


def test_a_script_that_is_not_asked_for_is_an_error_and_behind_a_failure_nothing(pytester: pytest.Pytester) -> None:
    printed = outcomes_of(
        pytester,
        """
import pytest

def test_asks_less(palaver_runs):
    palaver_runs.model.says("one").says("two")
    palaver_runs.run("hello")

def test_fails(palaver_runs):
    palaver_runs.model.says("one")
    assert "this" == "that"

@pytest.mark.xfail(strict=True)
def test_is_expected_to_fail(palaver_runs):
    palaver_runs.model.says("one")
    assert "this" == "that"
""",
        passed=1,
        errors=1,
        failed=1,
        xfailed=1,
    )
    assert "the model was not asked for 1 of its 2 answers: ScriptedTurn(text='two'" in printed


def test_what_is_asked_beyond_it_fails_and_shows_the_request(pytester: pytest.Pytester) -> None:
    text = """
def test_asks_more(palaver_runs):
    palaver_runs.run("hello you")
"""
    printed = outcomes_of(pytester, text, failed=1)
    assert "AssertionError: the model was asked 1 times, and its script has 0 answers" in printed
    assert "'content': 'hello you'" in printed


def test_who_does_not_ask_for_it_imports_nothing(pytester: pytest.Pytester) -> None:
    text = """
import sys

def test_without():
    ours = [name for name in sys.modules if name.partition(".")[0] in ("palaver", "features", "workers", "api")]
    print("imported:", *sorted(ours))
"""
    printed = outcomes_of(pytester, text, "-s", passed=1)
    assert re.findall(r"imported: (.*)", printed) == ["features features.testing features.testing.plugin"]


def test_the_environment_of_a_project_has_no_part_in_it(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test says what it runs on. Nothing is connected to that the variables name."""
    addresses = {"REDIS_URL": "redis", "BROKER_URL": "amqp", "ARCHIVE_URL": "postgresql"}
    for name, scheme in addresses.items():
        monkeypatch.setenv(f"PALAVER_{name}", f"{scheme}://user:secret@palaver.invalid:1/0")
    for name in ("API_KEYS", "SECRET_KEY", "SHARDS", "PROVIDERS", "POLICY", "TOOLS"):
        monkeypatch.setenv(f"PALAVER_{name}", "fits nothing")
    text = f"""{REFUND}
import pytest
from palaver.errors import Refused

def test_it(palaver_runs):
    palaver_runs.model.calls("refund", order=1).says("Done.")
    assert palaver_runs.run("refund 1", tools=[refund]).output == "Done."
    with pytest.raises(Refused, match="unknown_conversation"):
        palaver_runs.run("and then?", conversation_id="conv_" + 28 * "0")
"""
    outcomes_of(pytester, text, passed=1)


@pytest.mark.parametrize("missing", ["fakeredis", "lupa", "celery"])
def test_it_says_what_to_install(pytester: pytest.Pytester, missing: str) -> None:
    pytester.makeconftest(f"import sys; sys.modules[{missing!r}] = None")
    printed = outcomes_of(pytester, "def test_it(palaver_runs): pass", errors=1)
    assert "palaver_runs needs the extra `testing`: pip install 'palaver[testing]'" in printed


@pytest.mark.parametrize("mark", ["asyncio", "anyio"])
def test_async_tests_of_both_kinds_await_it(pytester: pytest.Pytester, mark: str) -> None:
    text = f"""{REFUND}
import pytest

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.{mark}
async def test_it(palaver_runs):
    palaver_runs.model.calls("refund", order=1).says("Done.")
    run = await palaver_runs.arun("refund 1", tools=[refund], approvals={{"require": "always"}})
    assert (await run.approve().agoes_on()).output == "Done."
"""
    outcomes_of(pytester, text, passed=1)


@pytest.mark.slow
@pytest.mark.long
def test_a_thousand_of_them(pytester: pytest.Pytester) -> None:
    text = f"""{REFUND}
import pytest

@pytest.mark.parametrize("order", range(1000))
def test_it(palaver_runs, order):
    palaver_runs.model.calls("refund", order=order).says("Done.")
    assert palaver_runs.run("please", tools=[refund]).calls("refund") == [{{"order": order}}]
"""
    printed = outcomes_of(pytester, text, "-q", passed=1000)
    (took,) = re.findall(r"1000 passed in ([\d.]+)s", printed)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{1000 / float(took):.0f} tests a second, {used.ru_utime + used.ru_stime:.0f} ms of a processor each")
