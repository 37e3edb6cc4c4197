"""Ways to ask for a payment by OpenHands' dialect."""

from __future__ import annotations

from typing import Any, Final

from features.openhands.tests.cases import PREFIX as TALKS
from features.openhands.tests.unit.test_openhands_agents import AGENT as OPENHANDS_AGENT
from tests.unit.asking import SECRETS, YES, Ways
from tests.unit.test_api_second_person import PAY, Office

WAYS: Final = Ways()
way = WAYS.by


ASKS: Final = {**OPENHANDS_AGENT, "tools": [{"name": "pay", "params": {}}], "include_default_tools": []}


async def _talk(desk: Office, by: str) -> str:
    """A conversation of OpenHands': its path."""
    body = {"agent": ASKS, "client_tools": [], "confirmation_policy": {"kind": "AlwaysConfirm"}}
    return f"{TALKS}/{(await desk.have(by, 'POST', TALKS, body))['id']}"


async def _say(desk: Office, by: str, talk: str, *, run: bool = False) -> None:
    content = [{"type": "text", "text": PAY}]
    await desk.have(by, "POST", f"{talk}/events", {"role": "user", "content": content, "run": run})


async def _run(desk: Office, talk: str, by: str = "bob") -> dict[str, Any]:
    await desk.have(by, "POST", f"{talk}/run")
    return (await desk.runs("status=queued"))[0]


@way("POST /openhands/api/conversations")
async def _begin_talk(desk: Office) -> dict[str, Any]:
    talk = await _talk(desk, "ann")
    await _say(desk, "bob", talk)
    return await _run(desk, talk)


@way("POST /openhands/api/conversations/{conversation}/events")
async def _say_to_talk(desk: Office) -> dict[str, Any]:
    talk = await _talk(desk, "bob")
    await _say(desk, "ann", talk)
    return await _run(desk, talk)


@way("POST /openhands/api/conversations/{conversation}/run")
async def _run_talk(desk: Office) -> dict[str, Any]:
    talk = await _talk(desk, "bob")
    await _say(desk, "bob", talk)
    return await _run(desk, talk, "ann")


@way("POST /openhands/api/conversations/{conversation}/events/respond_to_confirmation")
async def _reject_with_words(desk: Office) -> dict[str, Any]:
    talk = await _talk(desk, "bob")
    await _say(desk, "bob", talk, run=True)
    await desk.pay((await desk.runs())[0])
    await desk.have("ann", "POST", f"{talk}/events/respond_to_confirmation", {"accept": False, "reason": PAY})
    await _say(desk, "bob", talk)
    return await _run(desk, talk)


@way("POST /openhands/api/conversations/{conversation}/confirmation_policy")
async def _change_policy(desk: Office) -> dict[str, Any]:
    talk = await _talk(desk, "bob")
    policy = {"policy": {"kind": "ConfirmRisky", "threshold": "LOW"}}
    await desk.have("ann", "POST", f"{talk}/confirmation_policy", policy)
    await _say(desk, "bob", talk)
    return await _run(desk, talk)


@way("POST /openhands/api/conversations/{conversation}/security_analyzer")
async def _change_analyzer(desk: Office) -> dict[str, Any]:
    talk = await _talk(desk, "bob")
    await desk.have("ann", "POST", f"{talk}/security_analyzer", {"security_analyzer": {"kind": "LLMSecurityAnalyzer"}})
    await _say(desk, "bob", talk)
    return await _run(desk, talk)


@way("POST /openhands/api/conversations/{conversation}/secrets")
async def _set_secrets_of_talk(desk: Office) -> dict[str, Any]:
    talk = await _talk(desk, "bob")
    await desk.have("ann", "POST", f"{talk}/secrets", SECRETS)
    await _say(desk, "bob", talk)
    return await _run(desk, talk)


@way("POST /openhands/api/conversations/{conversation}/fork")
async def _fork_talk(desk: Office) -> dict[str, Any]:
    talk = await _talk(desk, "bob")
    await _say(desk, "bob", talk)
    made = await desk.have("ann", "POST", f"{talk}/fork", {})
    return await _run(desk, f"{TALKS}/{made['id']}")


WORDS: Final[dict[str, tuple[str, str, Any]]] = {
    "OpenHands' message": ("POST", f"{TALKS}/{{number}}/events", {"role": "user", "content": YES}),
    "OpenHands' message that runs": ("POST", f"{TALKS}/{{number}}/events", {"content": YES, "run": True}),
}  # fmt: skip
