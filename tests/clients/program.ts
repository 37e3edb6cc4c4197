// Submits a run, watches it, approves what it asks for and lists what has ended, on the client in clients/typescript.
import { Palaver } from "palaver-client";

const palaver = new Palaver({ baseUrl: process.env.PALAVER_URL!, credential: process.env.PALAVER_API_KEY });
const agent = { model: "fake/tool-1", tools: ["calculator"], approvals: { require: "always" as const } };
const run = await palaver.submit({ agent, input: "What is 1 + 1?" });
for await (const event of palaver.events(run.id)) {
  if (event.type === "message.created") {
    for (const call of event.message.tool_calls) console.log(`calls ${call.name} ${call.arguments.trim()}`);
  } else if (event.type === "action.required") {
    await palaver.approve(run.id, event.action);
  } else if (event.type === "run.finished") {
    console.log(event.status, event.error?.class ?? "without an error");
  }
}
const { data: ended } = await palaver.api.GET("/v1/runs", { params: { query: { status: ["completed", "failed"], limit: 200 } } });
console.log(ended!.data.find((each) => each.id === run.id)!.usage.tool_calls);
