"""Runs OpenHands' own client, of whatever generation its environment has, as it is told line by line.

Each line of the standard input is a request in JSON: an `id`, the name `of` a conversation, what to `do` and how. Each
runs in a thread of its own, as a client that waits in one thread is paused by another. Each line of the standard output
answers one: its `id`, and what was `seen` or `raised`.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
import types
import uuid
import warnings

warnings.simplefilter("ignore")
os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENHANDS_SUPPRESS_BANNER": "1", "LOG_LEVEL": "ERROR"}
# What libraries print goes to the standard error.
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)

# What is imported stays: to look through it again and again would take a sixth of the time.
gc.disable()
import talkers  # noqa: E402

from openhands.sdk import LLM, Agent, Conversation, Tool  # noqa: E402
from openhands.sdk.conversation.impl import remote_conversation  # noqa: E402
from openhands.sdk.event import Event  # noqa: E402
from openhands.sdk.security import confirmation_policy, llm_analyzer  # noqa: E402
from openhands.sdk.workspace import RemoteWorkspace  # noqa: E402

gc.freeze()
gc.enable()

told = {}
"""Events that the callbacks of each conversation were told, in order."""
said = {}
"""Pieces of answers that they were told meanwhile."""
conversations = {}
lock = threading.Lock()


def open_(name, *, host, api_key=None, llm, tools=(), agent=None, client_tools=(), tokens=False, **options):
    """The conversation, new or attached to."""
    made = Agent(llm=LLM(**llm), tools=[Tool(**each) for each in tools], **(agent or {}))
    told[name] = []
    if client_tools:
        # The older generation has none.
        from openhands.sdk.tool.client_tool import ClientToolSpec

        options["client_tools"] = [ClientToolSpec(**each) for each in client_tools]
    if tokens:
        said[name] = []
        options["token_callbacks"] = [said[name].append]
    if "conversation_id" in options:
        options["conversation_id"] = uuid.UUID(options["conversation_id"])
    conversation = Conversation(
        agent=made,
        workspace=RemoteWorkspace(host=host, api_key=api_key, working_dir="workspace"),
        callbacks=[told[name].append],
        visualizer=None,
        **options,
    )
    # Unless it is told to, a client deletes its conversation when it is closed.
    conversation.delete_on_close = False
    conversations[name] = conversation
    return str(conversation.id)


def connect(name, *, host, request=None, conversation_id=None):
    """The same by the words of its class, which the older generation has not: one that is created as a request says, or
    one that is there."""
    workspace, told[name] = RemoteWorkspace(host=host, working_dir="workspace"), []
    options = {"callbacks": [told[name].append], "visualizer": None}
    if request is None:
        made = remote_conversation.RemoteConversation.attach(workspace, uuid.UUID(conversation_id), **options)
    else:
        from openhands.sdk.conversation.request import StartConversationRequest

        wanted = StartConversationRequest.model_validate(request)
        made = remote_conversation.RemoteConversation.create(workspace, wanted, **options)
    made.delete_on_close = False
    conversations[name] = made
    return str(made.id)


def call(name, *, method, arguments=(), **named):
    """What a method of the conversation answers."""
    answer = getattr(conversations[name], method)(*arguments, **named)
    if method == "fork":
        answer.delete_on_close = False
        conversations[name + "-fork"] = answer
        return str(answer.id)
    return answer


def confirm(name, *, policy, **options):
    """Set when calls wait for somebody."""
    conversations[name].set_confirmation_policy(getattr(confirmation_policy, policy)(**options))


def keep(name, *, secrets):
    """Give it secrets, as objects of the client where they are described."""
    from openhands.sdk import secret

    made = {
        key: getattr(secret, given.pop("kind"))(**given) if isinstance(given, dict) else given
        for key, given in secrets.items()
    }
    conversations[name].update_secrets(made)


def analyze(name):
    """Set what judges how risky a call is."""
    conversations[name].set_security_analyzer(llm_analyzer.LLMSecurityAnalyzer())


def events(name):
    """Those that the client's list has."""
    return [each.model_dump(mode="json") for each in conversations[name].state.events]


def heard(name):
    """Those that callbacks were told."""
    return [each.model_dump(mode="json") for each in list(told[name]) if isinstance(each, Event)]


def tokens(name):
    """The answers as they came piece by piece."""
    return "".join(each.choices[0].delta.content or "" for each in list(said[name]))


def deafen(name):
    """Let its socket end with the next thing that it is told, and not come back."""
    conversations[name]._ws_client._stop.set()


def hasten(name, *, times):
    """Let the clock by which the client waits go so many times as fast."""
    begun = time.monotonic()
    clock = types.SimpleNamespace(sleep=time.sleep, monotonic=lambda: begun + (time.monotonic() - begun) * times)
    remote_conversation.time = clock if times > 1 else time


def shown(name):
    """Everything that the client shows of the conversation, by name."""
    now = conversations[name].state
    # It reads each of them from what it was told, and raises something if that does not do.
    return {each: str(getattr(now, each)) for each, kind in vars(type(now)).items() if isinstance(kind, property)}


def state(name):
    """What the client shows of the conversation."""
    now = conversations[name].state
    return {
        "status": now.execution_status.value,
        "agent": type(now.agent).__name__,
        "workspace": now.workspace,
        "kept_at": now.persistence_dir,
        "policy": type(now.confirmation_policy).__name__,
        "analyzer": type(now.security_analyzer).__name__,
        "stats": conversations[name].conversation_stats.model_dump(mode="json"),
    }


def parse(name, *, each):
    """Whether this client takes these as events: the first that it refuses, and why."""
    for event in each:
        try:
            Event.model_validate(event)
        except Exception as error:
            return [event, str(error)]
    return None


def close(name, *, delete=False):
    """End the connection, and the conversation if so asked."""
    conversation = conversations.pop(name)
    conversation.delete_on_close = delete
    conversation.close()


WORDS = {
    "open": open_, "connect": connect, "call": call, "confirm": confirm, "keep": keep, "analyze": analyze,
    "events": events, "heard": heard, "tokens": tokens, "deafen": deafen, "hasten": hasten, "shown": shown,
    "state": state, "parse": parse, "close": close,
    "gather": talkers.gather, "tell": talkers.tell, "disperse": talkers.disperse,
}  # fmt: skip


def obey(id, do, of, **how):
    """Do it, and answer."""
    try:
        answer = {"id": id, "seen": WORDS[do](of, **how)}
    except Exception as error:
        cause = getattr(error, "conversation_error", None)
        answer = {
            "id": id,
            "raised": type(error).__name__,
            "why": str(error),
            "error": cause.model_dump(mode="json") if cause is not None else None,
        }
    with lock:
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    for line in sys.stdin:
        threading.Thread(target=obey, kwargs=json.loads(line), daemon=True).start()
    os._exit(0)
