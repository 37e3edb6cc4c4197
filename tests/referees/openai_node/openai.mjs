// OpenAI's client for Node.js at Palaver, where its other driver does not go: node openai.mjs BASE_URL. Says on its one
// line what became of each case: null if it is well, else why not.
import assert from 'node:assert/strict';
import OpenAI from 'openai';

const client = new OpenAI({ baseURL: process.argv[2], apiKey: 'any', maxRetries: 0, timeout: 60_000 });
const parameters = { type: 'object', properties: { place: { type: 'string' } }, required: ['place'] };
const weather = { name: 'weather', description: 'The weather somewhere.', parameters };
const asked = 'the weather? [[args {"place": "Rome"}]]';
const found = {};

async function check(name, run) {
  try {
    await run();
    found[name] = null;
  } catch (error) {
    found[name] = String(error?.message ?? error).slice(0, 400);
  }
}

await check('models are retrieved by the ids of their list', async () => {
  let count = 0;
  for await (const model of client.models.list()) {
    assert.deepEqual(await client.models.retrieve(model.id), model);
    count += 1;
  }
  assert.ok(count > 0);
});

for (const model of ['fake/tool-1', 'fake/tool-1+reasoning', 'fake/tool-2+badargs-1', 'fake/tool-2+unknowntool-1']) {
  await check(`runTools: ${model}`, async () => {
    const tool = { ...weather, parse: JSON.parse, function: ({ place }) => `sunny in ${place}` };
    const messages = [{ role: 'user', content: asked }];
    const runner = client.chat.completions.runTools({ model, messages, tools: [{ type: 'function', function: tool }] });
    assert.match(await runner.finalContent(), /sunny in Rome/);
    const behind = [...runner.messages, { role: 'user', content: 'thanks' }];
    const second = await client.chat.completions.create({ model: 'fake/echo', messages: behind });
    assert.equal(second.choices[0].message.content, 'echo: thanks');
  });
  for (const how of ['by previous_response_id', 'with all items again', 'with references']) {
    await check(`responses, ${how}: ${model}`, async () => {
      const tools = [{ type: 'function', strict: false, ...weather }];
      const input = [{ role: 'user', content: asked }];
      let response = await client.responses.create({ model, input, tools });
      for (let step = 0; step < 4; step += 1) {
        const calls = response.output.filter((item) => item.type === 'function_call');
        if (calls.length === 0) break;
        const outputs = calls.map(({ call_id, arguments: text }) => ({
          type: 'function_call_output',
          call_id,
          output: `sunny in ${JSON.parse(text).place}`,
        }));
        const said = how === 'with references' ? response.output.map(({ id }) => ({ type: 'item_reference', id })) : response.output;
        input.push(...said, ...outputs);
        const more = how.startsWith('by') ? { previous_response_id: response.id, input: outputs } : { input };
        response = await client.responses.create({ model, tools, ...more });
      }
      assert.match(response.output_text, /sunny in Rome/);
      const words = { role: 'user', content: 'thanks' };
      const all = [...input, ...response.output, words];
      const more = how.startsWith('by') ? { previous_response_id: response.id, input: [words] } : { input: all };
      assert.equal((await client.responses.create({ model: 'fake/echo', ...more })).output_text, 'echo: thanks');
    });
  }
}

await check('a call that waits for an approval', async () => {
  const input = [{ role: 'user', content: '[[args {"seconds": 0}]]' }];
  const first = await client.responses.create({ model: 'agent/careful', input });
  const [request] = first.output;
  assert.equal(request.type, 'mcp_approval_request');
  const decision = { type: 'mcp_approval_response', approval_request_id: request.id, approve: true };
  const second = await client.responses.create({ previous_response_id: first.id, input: [decision] });
  assert.deepEqual(second.output.map(({ type }) => type), ['mcp_call', 'message']);
});

console.log(JSON.stringify(found));
