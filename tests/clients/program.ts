// Submits a run, watches it, approves what it asks for and lists what has ended, on the types of openapi-typescript.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

type Event = components["schemas"]["KnownEvent"];
const api = createClient<paths, "application/json" | "application/problem+json">({ baseUrl: process.env.PALAVER_URL ?? "http://127.0.0.1:8080" });

async function* watch(run_id: string): AsyncGenerator<Event> {
  const { data } = await api.GET("/v1/runs/{run_id}/events", { params: { path: { run_id } }, parseAs: "stream" });
  let rest = "";
  for await (const piece of data!.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + piece).split("\n");
    rest = lines.pop()!;
    for (const line of lines) if (line.startsWith("data: ")) yield JSON.parse(line.slice(6));
  }
}

const agent = { model: "fake/tool-1", tools: ["calculator"], approvals: { require: "always" as const } };
const { data: run, error } = await api.POST("/v1/runs", { body: { agent, input: "What is 1 + 1?" } });
if (!run) throw new Error(`${error.code}: ${error.detail}`);
for await (const event of watch(run.id)) {
  if (event.type === "message.created") {
    for (const call of event.message.tool_calls) console.log(`calls ${call.name} ${call.arguments.trim()}`);
  } else if (event.type === "action.required") {
    const { id: action_id, digest } = event.action;
    const items = [{ type: "approval" as const, decision: "approve" as const, action_id, digest }];
    await api.POST("/v1/runs/{run_id}/input", { params: { path: { run_id: run.id } }, body: { items } });
  } else if (event.type === "run.finished") {
    console.log(event.status, event.error?.class ?? "without an error");
  }
}
const { data: ended } = await api.GET("/v1/runs", { params: { query: { status: ["completed", "failed"], limit: 200 } } });
console.log(ended!.data.find((each) => each.id === run.id)!.usage.tool_calls);
