// What the AI SDK of Vercel and the SDKs for Node make of a server: `ai_checks.mjs URL` prints a JSON object.
import Anthropic from '@anthropic-ai/sdk';
import { createOpenAI } from '@ai-sdk/openai';
import { generateObject, generateText, stepCountIs, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { z } from 'zod';

const url = process.argv[2];
const question = 'What is the weather in Rome?';
const answer = 'It hails in Rome.';
const provider = createOpenAI({ baseURL: `${url}/v1`, apiKey: 'x' });
const weather = tool({
  description: 'Tells the weather of a city.',
  inputSchema: z.object({ city: z.string() }),
  execute: async () => 'hail',
});

const checks = {
  // The default provider speaks Responses and refers to earlier items by their ids
  'ai: tool loop': async () => {
    const done = await generateText({
      model: provider('conductor'), prompt: question, tools: { weather }, stopWhen: stepCountIs(4),
    });
    return done.text === answer;
  },
  'ai: second turn': async () => {
    const first = await generateText({ model: provider('conductor'), prompt: question });
    const talk = [{ role: 'user', content: question }, ...first.response.messages];
    const done = await generateText({
      model: provider('conductor'), messages: [...talk, { role: 'user', content: 'And now?' }],
    });
    return done.text === answer;
  },
  'ai: chat provider': async () => {
    const done = await generateText({ model: provider.chat('conductor'), prompt: question });
    return done.text === answer;
  },
  'ai: object': async () => {
    const done = await generateObject({
      model: provider('conductor'), prompt: question, schema: z.object({ city: z.string() }),
    });
    return done.object.city === 'Rome';
  },
  'ai: stream': async () => {
    const done = streamText({ model: provider('conductor'), prompt: question });
    let text = '';
    for await (const piece of done.textStream) text += piece;
    return text === answer;
  },
  'openai (Node): responses': async () => {
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'x' });
    const done = await client.responses.create({ model: 'conductor', input: question });
    return done.output_text === answer;
  },
  'anthropic (Node): messages': async () => {
    const client = new Anthropic({ baseURL: url, apiKey: 'x' });
    const done = await client.messages.create({
      model: 'conductor', max_tokens: 200, messages: [{ role: 'user', content: question }],
    });
    return done.content.at(-1).text === answer;
  },
};

const results = {};
for (const [name, check] of Object.entries(checks)) {
  try {
    results[name] = (await check()) ? 'ok' : 'another answer';
  } catch (error) {
    results[name] = `${error.name}: ${String(error.message).slice(0, 200)}`;
  }
}
console.log(JSON.stringify(results));
