// What the client of the Agent Client Protocol's SDK makes of an agent:
// `acp_checks.mjs SETTINGS DIRECTORY COMMAND…` prints a JSON object. The SDK checks each message by its schema.
import * as acp from '@agentclientprotocol/sdk';
import { spawn } from 'node:child_process';
import { Readable, Writable } from 'node:stream';

const [settings, cwd, program, ...words] = process.argv.slice(2);
const env = { ...process.env, ...JSON.parse(settings) };
const answer = 'It hails in Rome.';
const updates = [];
const offers = [];
const results = {};

const agent = spawn(program, words, { env, stdio: ['pipe', 'pipe', 'inherit'] });
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const { agent: asks, client: answers } = acp.methods;
const editor = acp.client({ name: 'checks' })
  .onNotification(answers.session.update, async ({ params }) => { updates.push(params.update); })
  .onRequest(answers.session.requestPermission, async ({ params }) => {
    offers.push(params.toolCall.title);
    return { outcome: { outcome: 'selected', optionId: params.options[0].optionId } };
  });

const shown = (kind) => updates.filter((update) => update.sessionUpdate === kind);
const text = (kind) => shown(kind).map((update) => update.content.text).join('');
const ask = (context, sessionId, words) => context.request(
  asks.session.prompt, { sessionId, prompt: [{ type: 'text', text: words }] });
const check = (name, isRight) => { results[name] = isRight ? 'ok' : `not so: ${JSON.stringify(updates).slice(-300)}`; };

try {
  await editor.connectWith(stream, async (context) => {
    const begun = await context.request(asks.initialize, { protocolVersion: 1, clientCapabilities: {} });
    check('initialize', begun.protocolVersion === 1 && begun.agentCapabilities.loadSession);
    const opened = await context.request(asks.session.new, { cwd, mcpServers: [] });
    check('session/new', opened.modes.currentModeId === 'auto');
    const done = await ask(context, opened.sessionId, 'What is the weather in Rome?');
    check('session/prompt', done.stopReason === 'end_turn' && text('agent_message_chunk') === answer);
    check('session/request_permission', offers[0].startsWith('Run this plan? '));
    check('commands', shown('available_commands_update').length === 1);
    check('plan', shown('plan').at(-1).entries.every((entry) => entry.status === 'completed'));
    check('tool calls', shown('tool_call').length === 2);
    await context.request(asks.session.setMode, { sessionId: opened.sessionId, modeId: 'mini' });
    updates.length = 0;
    await context.request(asks.session.load, { cwd, sessionId: opened.sessionId, mcpServers: [] });
    check('session/load', text('agent_message_chunk') === answer && text('user_message_chunk').startsWith('What is'));
  });
} catch (error) {
  results.end = String(error?.message ?? error).slice(0, 300);
}
agent.stdin.end();
console.log(JSON.stringify(results));
