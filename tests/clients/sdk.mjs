// The official TypeScript client with `server-everything`, directly or through a bridge.
//
//   node sdk.mjs MODULES PREFIX ASKING URL            over Streamable HTTP
//   node sdk.mjs MODULES PREFIX ASKING COMMAND ARG…   over stdio
//
// MODULES is the folder where the SDK is installed. PREFIX is the prefix of tool and prompt names. ASKING lists the tools
// that send requests to the client: for sampling, elicitation and, if there is a third, roots. Prints the results as one
// JSON document.
import { createRequire } from 'node:module';
import { join } from 'node:path';

const [modules, prefix, asking, target, ...args] = process.argv.slice(2);
const [sampling, elicitation, roots] = asking.split(',');
const require = createRequire(join(modules, 'from-here.js'));
const sdk = (name) => require(`@modelcontextprotocol/sdk/${name}`);
const { Client } = sdk('client/index.js');
const types = sdk('types.js');

const transport = target.startsWith('http')
  ? new (sdk('client/streamableHttp.js').StreamableHTTPClientTransport)(new URL(target))
  : new (sdk('client/stdio.js').StdioClientTransport)({ command: target, args, env: process.env });
const capabilities = { roots: {}, sampling: {}, elicitation: {} };
const client = new Client({ name: 'typescript', version: '1' }, { capabilities });
client.setRequestHandler(types.ListRootsRequestSchema, () => ({ roots: [{ uri: 'file:///a-root', name: 'a root' }] }));
client.setRequestHandler(types.CreateMessageRequestSchema, () => ({
  model: 'none',
  role: 'assistant',
  content: { type: 'text', text: 'sampled' },
}));
client.setRequestHandler(types.ElicitRequestSchema, () => ({ action: 'accept', content: { name: 'elicited' } }));
await client.connect(transport);

// Progress is recorded in the transport: the client delivers it later, and drops it if the response to the call arrived
// in the same chunk.
const progress = [];
const deliver = transport.onmessage;
transport.onmessage = (message, ...rest) => {
  if (message.method === 'notifications/progress') progress.push(message.params.progress);
  return deliver(message, ...rest);
};

const textOf = ({ content }) => content.map(({ text }) => text ?? '').join('\n');
const call = async (name, args = {}, options = {}) =>
  textOf(await client.callTool({ name, arguments: args }, undefined, options));
const seen = {
  tools: (await client.listTools()).tools.map(({ name }) => name),
  echo: await call(`${prefix}echo`, { message: 'hello' }),
  long: await call(`${prefix}trigger-long-running-operation`, { duration: 0.3, steps: 3 }, {
    onprogress: () => {},
  }),
  progress,
};
const [resource] = (await client.listResources()).resources;
seen.resource = (await client.readResource({ uri: resource.uri })).contents[0].text.length > 0;
seen.prompts = (await client.listPrompts()).prompts.map(({ name }) => name);
const prompt = await client.getPrompt({ name: `${prefix}args-prompt`, arguments: { city: 'Bern' } });
seen.prompt = prompt.messages[0].content.text;
seen.sampling = await call(sampling, { prompt: 'say' });
seen.elicitation = await call(elicitation, { message: 'say' });
if (roots) seen.roots = await call(roots);
await client.close();
console.log(JSON.stringify(seen));
