// Says which of the events on stdin, one a line, a package does not take: by the schema that its own client goes by.
import { createInterface } from "node:readline";

const takes = {
  "ai-sdk": async () => {
    const { uiMessageChunkSchema } = await import("ai");
    return async (event) => (await uiMessageChunkSchema().validate(event)).success;
  },
  "ag-ui": async () => {
    const { EventSchemas } = await import("@ag-ui/core/schemas");
    return async (event) => EventSchemas.safeParse(event).success;
  },
};

const taken = await takes[process.argv[2]]();
for await (const line of createInterface({ input: process.stdin })) {
  if (!(await taken(JSON.parse(line)))) console.log(line);
}
