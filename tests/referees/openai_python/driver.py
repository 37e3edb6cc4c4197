"""Frameworks with a client of OpenAI's API at Palaver, by its address: ``python driver.py BASE_URL``. Says on its last
line what became of each case: null if it is well, else why not."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import litellm
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIConversationsSession,
    OpenAIResponsesModel,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.openai import OpenAIResponsesModel as PydanticResponses
from pydantic_ai.providers.openai import OpenAIProvider

BASE_URL = sys.argv[1]
SLIPS = ("badargs", "unknowntool")
ROME, OSLO = 'the weather? [[args {"place": "Rome"}]]', 'and now? [[args {"place": "Oslo"}]]'
Case = Callable[[], Awaitable[None]]
CASES: dict[str, Case] = {}
MADE: list[str] = []


def case(name: str) -> Callable[[Case], Case]:
    def kept(run: Case) -> Case:
        CASES[name] = run
        return run

    return kept


def weather(place: str) -> str:
    """The weather somewhere."""
    MADE.append(place)
    return f"sunny in {place}"


def of_agents(kind: str, model_of: Callable[[str], Any], session_of: Callable[[], Any]) -> None:
    tool = function_tool(weather)

    def agent(name: str) -> Any:
        return Agent("weatherman", instructions="Be kind.", model=model_of(name), tools=[tool])

    async def ask(name: str, said: Any, streamed: bool, session: Any = None) -> Any:
        if not streamed:
            return await Runner.run(agent(name), said, session=session)
        result = Runner.run_streamed(agent(name), said, session=session)
        async for _ in result.stream_events():
            pass
        return result

    for streamed in (False, True):
        how = f"openai-agents, {kind}, {'streamed' if streamed else 'whole'}"
        for name in ("tool-1", "tool-1+reasoning"):

            @case(f"{how}: {name}, and a second turn")
            async def turns(name: str = name, streamed: bool = streamed) -> None:
                one = await ask(f"fake/{name}", ROME, streamed)
                assert "sunny in Rome" in one.final_output, one.final_output
                two = await ask(f"fake/{name}", [*one.to_input_list(), {"role": "user", "content": OSLO}], streamed)
                assert "sunny in Oslo" in two.final_output, two.final_output

        for slip in SLIPS:

            @case(f"{how}: a model that slips: {slip}")
            async def slips(slip: str = slip, streamed: bool = streamed) -> None:
                # Ids of the fake's calls are not unique where a client has not seen the slip: no other call follows.
                one = await ask(f"fake/tool-1+{slip}-1", "the weather?", streamed)
                assert "done: 1 tool results" in one.final_output, one.final_output
                behind = [*one.to_input_list(), {"role": "user", "content": "thanks"}]
                two = await ask("fake/echo", behind, streamed)
                assert two.final_output == "echo: thanks", two.final_output

        @case(f"{how}: a session")
        async def session(streamed: bool = streamed) -> None:
            kept = session_of()
            one = await ask("fake/tool-1", ROME, streamed, kept)
            two = await ask("fake/echo", "thanks", streamed, kept)
            assert ("sunny in Rome" in one.final_output, two.final_output) == (True, "echo: thanks")
            items = await kept.get_items()
            assert [item.get("type", "message") for item in items] == [
                "message", "function_call", "function_call_output", "message", "message", "message"
            ], items  # fmt: skip
            await kept.clear_session()


def of_pydantic(kind: str, model_of: Callable[[str], Any], settings: Any = None) -> None:
    def agent(name: str, **more: Any) -> Any:
        return PydanticAgent(model_of(name), instructions="Be kind.", tools=[weather], model_settings=settings, **more)

    async def ask(agent: Any, said: str, streamed: bool, history: Any = None) -> Any:
        if not streamed:
            return await agent.run(said, message_history=history)
        async with agent.iter(said, message_history=history) as run:
            async for node in run:
                if PydanticAgent.is_model_request_node(node):
                    async with node.stream(run.ctx) as stream:
                        async for _ in stream:
                            pass
        return run.result

    for streamed in (False, True):
        how = f"pydantic-ai, {kind}, {'streamed' if streamed else 'whole'}"
        for name in ("tool-1", "tool-1+reasoning"):

            @case(f"{how}: {name}, and a second turn")
            async def turns(name: str = name, streamed: bool = streamed) -> None:
                one = await ask(agent(f"fake/{name}"), ROME, streamed)
                assert "sunny in Rome" in one.output, one.output
                two = await ask(agent(f"fake/{name}"), OSLO, streamed, one.all_messages())
                assert "sunny in Oslo" in two.output, two.output

        for slip in SLIPS:

            @case(f"{how}: a model that slips: {slip}")
            async def slips(slip: str = slip, streamed: bool = streamed) -> None:
                one = await ask(agent(f"fake/tool-2+{slip}-1"), "the weather?", streamed)
                assert "sunny in" in one.output, one.output
                two = await ask(agent("fake/echo"), "thanks", streamed, one.all_messages())
                assert two.output == "echo: thanks", two.output

        if kind != "Responses":
            continue

        @case(f"{how}: a tool of the server, and a second turn")
        async def server(streamed: bool = streamed) -> None:
            recorder = PydanticAgent(model_of("agent/recorder"), model_settings=settings)
            one = await ask(recorder, '[[args {"seconds": 0}]]', streamed)
            assert "done: 1 tool results" in one.output, one.output
            two = await ask(agent("fake/echo"), "thanks", streamed, one.all_messages())
            assert two.output == "echo: thanks", two.output


def of_litellm() -> None:
    told: Any = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
    function = {"name": "weather", "description": "The weather somewhere.", "parameters": told}
    at: Any = {"api_base": BASE_URL, "api_key": "any", "num_retries": 0}

    for streamed in (False, True):
        how = f"LiteLLM, {'streamed' if streamed else 'whole'}"

        async def complete(name: str, messages: list[Any], streamed: bool, tools: bool = True) -> Any:
            more: Any = {"tools": [{"type": "function", "function": function}]} if tools else {}
            answer: Any = await litellm.acompletion(f"openai/{name}", messages, stream=streamed, **more, **at)
            if streamed:
                answer = litellm.stream_chunk_builder([chunk async for chunk in answer], messages=messages)
            return answer.choices[0].message

        for name in ("tool-1", "tool-1+reasoning", *(f"tool-2+{slip}-1" for slip in SLIPS)):

            @case(f"{how}: chat, {name}, and a second turn")
            async def chats(name: str = name, streamed: bool = streamed) -> None:
                messages: list[Any] = [{"role": "user", "content": ROME if "badargs" not in name else "the weather?"}]
                for _ in range(4):
                    message = await complete(f"fake/{name}", messages, streamed)
                    messages.append(message.model_dump(exclude_none=True))
                    if not message.tool_calls:
                        break
                    for call in message.tool_calls:
                        output = weather(**json.loads(call.function.arguments))
                        messages.append({"role": "tool", "tool_call_id": call.id, "content": output})
                assert "sunny in" in messages[-1]["content"], messages
                messages.append({"role": "user", "content": "thanks"})
                assert (await complete("fake/echo", messages, streamed)).content == "echo: thanks"

        @case(f"{how}: Responses, a function, and a second turn")
        async def responds(streamed: bool = streamed) -> None:
            async def respond(model: str, **more: Any) -> Any:
                answer = await litellm.aresponses(model=f"openai/{model}", stream=streamed, **more, **at)
                if streamed:
                    return [event async for event in answer][-1].response
                return answer

            tools: Any = [{"type": "function", **function}]
            one = await respond("fake/tool-1", input=ROME, tools=tools)
            call = next(item for item in one.output if item.type == "function_call")
            said = [{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
            two = await respond("fake/tool-1", input=said, tools=tools, previous_response_id=one.id)
            assert "sunny" in two.output_text, two
            three = await respond("fake/echo", input="thanks", previous_response_id=two.id)
            assert three.output_text == "echo: thanks", three


async def main() -> None:
    """Try all of it."""
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=BASE_URL, api_key="any", max_retries=0)
    of_agents(
        "Responses",
        lambda name: OpenAIResponsesModel(name, client),
        lambda: OpenAIConversationsSession(openai_client=client),
    )
    of_agents("chat", lambda name: OpenAIChatCompletionsModel(name, client), lambda: SQLiteSession("weather"))
    provider = OpenAIProvider(openai_client=client)
    of_pydantic("Responses", lambda name: PydanticResponses(name, provider=provider))
    of_pydantic("chat", lambda name: OpenAIChatModel(name, provider=provider))
    of_litellm()
    found = dict[str, str | None]()
    for name, run in CASES.items():
        MADE.clear()
        try:
            await asyncio.wait_for(run(), 60)
            found[name] = None
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"[:400]
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main())
