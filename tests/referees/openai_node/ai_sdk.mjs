// Providers of the AI SDK at Palaver, each with its own words: node ai_sdk.mjs BASE_URL. There are two agents on the
// server, `recorder` with a tool of the server, and `careful`, whose calls of it wait for an approval. Says on its one line what
// became of each case: null if it is well, else why not.
import assert from 'node:assert/strict';
import { createOpenAI as createOpenAI4 } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import * as ai7 from 'ai';
import * as ai6 from 'ai-6';
import { createOpenAI as createOpenAI3 } from 'ai-6-openai';
import { z } from 'zod';

const baseURL = process.argv[2];
const settings = { baseURL, apiKey: 'any' };
const compatible = createOpenAICompatible({ name: 'palaver', includeUsage: true, ...settings });
const responses = [
  ['openai 3', ai6, createOpenAI3(settings)],
  ['openai 4', ai7, createOpenAI4(settings)],
];
const chats = [
  ['chat of openai 3', ai6, (name) => createOpenAI3(settings).chat(name)],
  ['chat of openai 4', ai7, (name) => createOpenAI4(settings).chat(name)],
  ['openai-compatible', ai7, (name) => compatible(name)],
];
const SLIPS = ['badargs', 'unknowntool'];
const found = {};

const made = [];
const weather = (ai) => ({
  weather: ai.tool({
    description: 'The weather somewhere.',
    inputSchema: z.object({ place: z.string() }),
    execute: async ({ place }) => (made.push(place), `sunny in ${place}`),
  }),
});
const user = (content) => ({ role: 'user', content });

async function check(name, run) {
  made.length = 0;
  try {
    await run();
    found[name] = null;
  } catch (error) {
    found[name] = String(error?.responseBody ?? error?.message ?? error).slice(0, 400);
  }
}

async function said(ai, options, streamed) {
  const steps = ai.isStepCount ?? ai.stepCountIs;
  const more = { maxRetries: 0, stopWhen: steps(5), ...options };
  if (!streamed) return ai.generateText(more);
  const errors = [];
  const result = ai.streamText({ ...more, onError: ({ error }) => errors.push(error) });
  let text = '';
  for await (const part of result.fullStream) if (part.type === 'text-delta') text += part.text ?? part.delta ?? '';
  if (errors.length > 0) throw errors[0];
  return {
    text: (await result.steps).at(-1).text,
    shown: text,
    steps: await result.steps,
    usage: await result.usage,
    response: await result.response,
    reasoningText: await result.reasoningText,
    content: await result.content,
  };
}

async function conversation(kind, ai, model, streamed) {
  const how = streamed ? 'streamed' : 'whole';
  await check(`${kind}: ${how}: a text`, async () => {
    const answer = await said(ai, { model: model('fake/echo'), prompt: 'hello' }, streamed);
    assert.equal(answer.text, 'echo: hello');
    assert.ok(answer.usage.totalTokens > 0);
  });
  for (const thinks of ['', '+reasoning']) {
    await check(`${kind}: ${how}: a tool, and a second turn${thinks && ', of a model that thinks'}`, async () => {
      const first = { model: model(`fake/tool-1${thinks}`), tools: weather(ai), system: 'Be kind.' };
      const messages = [user('the weather? [[args {"place": "Rome"}]]')];
      const one = await said(ai, { ...first, messages }, streamed);
      assert.deepEqual(made, ['Rome']);
      assert.match(one.text, /sunny in Rome/);
      const sent = one.responseMessages ?? one.response.messages;
      const all = one.steps ? one.steps.at(-1).response.messages : sent;
      const behind = [...messages, ...(sent.length >= all.length ? sent : all), user('and now? [[args {"place": "Oslo"}]]')];
      const two = await said(ai, { ...first, messages: behind }, streamed);
      assert.deepEqual(made, ['Rome', 'Oslo']);
      assert.match(two.text, /sunny in Oslo/);
    });
  }
  for (const slip of SLIPS) {
    await check(`${kind}: ${how}: a model that slips: ${slip}`, async () => {
      const messages = [user(slip === 'badargs' ? 'the weather?' : 'the weather? [[args {"place": "Rome"}]]')];
      const options = { model: model(`fake/tool-2+${slip}-1`), tools: weather(ai) };
      const one = await said(ai, { ...options, messages }, streamed);
      assert.ok(made.length >= 1);
      assert.match(one.text, /sunny in/);
      const sent = one.steps.at(-1).response.messages;
      const two = await said(ai, { model: model('fake/echo'), messages: [...messages, ...sent, user('thanks')] }, streamed);
      assert.equal(two.text, 'echo: thanks');
    });
  }
}

async function ofResponses(kind, ai, openai) {
  for (const streamed of [false, true]) await conversation(kind, ai, (name) => openai(name), streamed);
  await check(`${kind}: an object`, async () => {
    const schema = z.object({ city: z.string() });
    const output = ai.Output.object({ schema });
    const answer = await ai.generateText({ model: openai('fake/json'), prompt: 'a city', output, maxRetries: 0 });
    assert.equal(typeof answer.output.city, 'string');
  });
  await check(`${kind}: previousResponseId`, async () => {
    const one = await ai.generateText({ model: openai('fake/echo'), prompt: 'hello', maxRetries: 0 });
    const id = one.providerMetadata.openai.responseId;
    const providerOptions = { openai: { previousResponseId: id } };
    const two = await ai.generateText({ model: openai('fake/echo'), prompt: 'again', providerOptions, maxRetries: 0 });
    assert.equal(two.text, 'echo: again');
  });
  const asking = user('[[args {"seconds": 0}]]');
  await check(`${kind}: a tool of the server, and a second turn`, async () => {
    const options = { model: openai('agent/recorder'), maxRetries: 0 };
    const one = await ai.generateText({ ...options, messages: [asking] });
    assert.ok(one.content.some((part) => part.type === 'tool-result' && part.providerExecuted));
    const behind = [asking, ...one.response.messages, user('thanks')];
    const two = await ai.generateText({ ...options, model: openai('fake/echo'), messages: behind });
    assert.equal(two.text, 'echo: thanks');
  });
  await check(`${kind}: a tool of the server that waits for an approval`, async () => {
    const options = { model: openai('agent/careful'), maxRetries: 0 };
    const one = await ai.generateText({ ...options, messages: [asking] });
    const request = one.content.find((part) => part.type === 'tool-approval-request');
    assert.ok(request, JSON.stringify(one.content));
    assert.equal(request.toolCall.providerExecuted, true);
    const decision = { type: 'tool-approval-response', approvalId: request.approvalId, approved: true, providerExecuted: true };
    const decided = [asking, ...one.response.messages, { role: 'tool', content: [decision] }];
    const two = await ai.generateText({ ...options, messages: decided });
    assert.match(two.text, /^done: 1 tool results/);
    const behind = [...decided, ...two.response.messages, user('thanks')];
    const three = await ai.generateText({ ...options, model: openai('fake/echo'), messages: behind });
    assert.equal(three.text, 'echo: thanks');
  });
}

for (const [kind, ai, openai] of responses) await ofResponses(kind, ai, openai);
for (const [kind, ai, model] of chats) for (const streamed of [false, true]) await conversation(kind, ai, model, streamed);
console.log(JSON.stringify(found));
