// Follows the run that it is named to its end, writes each event's number and text as it comes, and then its status.
import { Palaver } from "palaver-client";

const palaver = new Palaver({ baseUrl: process.env.PALAVER_URL! });
for await (const event of palaver.events(process.argv[2]!)) {
  if (event.type === "message.delta") console.log("delta", event.seq, event.text);
  if (event.type === "message.created" && event.message.role === "assistant") console.log("message", event.message.content);
}
const run = await palaver.wait(process.argv[2]!);
console.log("ended", run.status);
