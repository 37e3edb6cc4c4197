// OpenAI's client for Node.js at an API: `node driver.mjs BASE_URL`. The last line says with which version.
import assert from "node:assert/strict";
import OpenAI, { BadRequestError, NotFoundError } from "openai";
import { VERSION } from "openai/version";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "any", maxRetries: 0, timeout: 60_000 });
const { chat, conversations, models, responses } = client;
const input = "hello";
const look = [{ type: "function", name: "look", strict: false, parameters: { type: "object", properties: {} } }];
const server = { type: "mcp", server_label: "palaver", allowed_tools: ["record"] };
const numbers = (events) => events.map((event) => event.sequence_number);

async function all(stream) {
  const found = [];
  for await (const each of stream) found.push(each);
  return found;
}

async function answers() {
  const response = await responses.create({ model: "fake/echo", input, metadata: { a: "b" } });
  assert.equal(response.status, "completed");
  assert.equal(response.output_text, "echo: hello");
  assert.ok(response.usage.total_tokens > 0);
  assert.ok(response._request_id);
  const items = await all(responses.inputItems.list(response.id));
  assert.deepEqual(items.map((item) => item.content[0].text), [input]);
  await responses.delete(response.id);
  await assert.rejects(responses.retrieve(response.id), (error) => {
    assert.ok(error instanceof NotFoundError);
    assert.deepEqual([error.code, error.type], ["run_not_found", "not_found_error"]);
    return Boolean(error.requestID);
  });
}

async function isCancelled() {
  const response = await responses.create({ model: "fake/hang", input, background: true });
  assert.ok(["queued", "in_progress"].includes(response.status));
  for (let times = 0; times < 2; times += 1) {
    assert.equal((await responses.cancel(response.id)).status, "cancelled");
  }
  const last = (await all(await responses.retrieve(response.id, { stream: true }))).at(-1);
  assert.deepEqual([last.type, last.response.status], ["response.incomplete", "cancelled"]);
}

async function streamsAndGoesOn() {
  const first = [];
  const stream = await responses.create({ model: "fake/say-12+rate-40", input, background: true, stream: true });
  for await (const event of stream) {
    first.push(event);
    if (first.length === 7) break;
  }
  const { id } = first[0].response;
  const startingAfter = first.at(-1).sequence_number;
  const rest = await all(await responses.retrieve(id, { stream: true, starting_after: startingAfter }));
  const whole = await all(await responses.retrieve(id, { stream: true }));
  const text = (events) =>
    events.map((event) => (event.type === "response.output_text.delta" ? event.delta : "")).join("");
  assert.equal(text([...first, ...rest]), whole.at(-1).response.output[0].content[0].text);
  assert.equal(text(whole), text([...first, ...rest]));
  assert.equal((await responses.retrieve(id)).status, "completed");
  const helper = responses.stream({ response_id: id, starting_after: startingAfter });
  const helped = numbers(await all(helper));
  assert.deepEqual(helped, numbers(whole).filter((number) => number > startingAfter));
  assert.equal((await helper.finalResponse()).output_text, text(whole));
}

async function calls() {
  const asked = responses.stream({ model: "fake/tool-1", input, tools: look });
  const first = await asked.finalResponse();
  const call = first.output.find((item) => item.type === "function_call");
  const said = [{ type: "function_call_output", call_id: call.call_id, output: "seen" }];
  const second = await responses.create({
    model: "fake/tool-1",
    input: said,
    previous_response_id: first.id,
    tools: look,
  });
  assert.equal(second.status, "completed");
  assert.match(second.output_text, /seen/);
  const [item] = await all(responses.inputItems.list(second.id));
  assert.deepEqual([item.type, item.output], ["function_call_output", "seen"]);
}

async function asksForApproval() {
  const tools = [{ ...server, require_approval: "always" }];
  const first = await responses.create({ model: "fake/tool-1", input: '[[args {"seconds": 0}]]', tools });
  const request = first.output.find((item) => item.type === "mcp_approval_request");
  const said = [{ type: "mcp_approval_response", approval_request_id: request.id, approve: true }];
  const second = await responses.create({ model: "fake/tool-1", input: said, previous_response_id: first.id });
  assert.deepEqual(second.output.map((item) => item.type), ["mcp_call", "message"]);
  assert.equal(second.output[0].output, "recorded");
}

async function failsAndIsRefused() {
  const response = await responses.create({ model: "fake/401", input });
  assert.deepEqual([response.status, response.error.code], ["failed", "server_error"]);
  const unknown = responses.create({ model: "agent/nobody", input });
  await assert.rejects(unknown, (error) => error instanceof NotFoundError && error.code === "model_not_found");
  const search = responses.create({ model: "fake/echo", input, tools: [{ type: "web_search" }] });
  await assert.rejects(search, (error) => error instanceof BadRequestError && error.code === "unsupported_option");
}

async function converses() {
  const made = await conversations.create({ metadata: { topic: "demo" } });
  await responses.create({ model: "fake/echo", input, conversation: made.id });
  const items = await all(conversations.items.list(made.id, { order: "asc", limit: 1 }));
  assert.deepEqual(items.map((item) => item.role), ["user", "assistant"]);
  assert.equal((await conversations.retrieve(made.id)).metadata.topic, "demo");
  assert.equal((await conversations.delete(made.id)).deleted, true);
}

async function chats() {
  const messages = [{ role: "user", content: input }];
  const whole = await chat.completions.create({ model: "fake/echo", messages });
  assert.equal(whole.choices[0].message.content, "echo: hello");
  const chunks = await all(
    await chat.completions.create({
      model: "fake/echo",
      messages,
      stream: true,
      stream_options: { include_usage: true },
    }),
  );
  assert.ok(chunks.at(-1).usage.total_tokens > 0);
  assert.equal(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join(""), "echo: hello");
  const tools = look.map(({ type, ...named }) => ({ type, function: named }));
  const asked = chat.completions.stream({ model: "fake/tool-1", messages, tools });
  const [choice] = (await asked.finalChatCompletion()).choices;
  const [call] = choice.message.tool_calls;
  assert.deepEqual([choice.finish_reason, call.function.name], ["tool_calls", "look"]);
  const answered = [...messages, choice.message, { role: "tool", tool_call_id: call.id, content: "seen" }];
  const second = await chat.completions.create({ model: "fake/tool-1", messages: answered, tools });
  assert.match(second.choices[0].message.content, /seen/);
  assert.ok(Array.isArray(await all(models.list())));
}

for (const check of [
  answers, isCancelled, streamsAndGoesOn, calls, asksForApproval, failsAndIsRefused, converses, chats,
]) {
  await check();
}
console.log(VERSION);
