// A server with every feature that the official conformance suite tests for revision 2025-11-25.
//
//   node conformance.mjs MODULES stdio     on stdin and stdout
//   node conformance.mjs MODULES http      Streamable HTTP at /mcp
//   node conformance.mjs MODULES sse       HTTP+SSE at /sse
//
// MODULES is the folder where the official SDK is installed. Over HTTP the server uses a free port and prints its URL as
// the first line on stdout.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

const [modules, transport] = process.argv.slice(2);
const require = createRequire(join(modules, 'from-here.js'));
const sdk = (name) => require(`@modelcontextprotocol/sdk/${name}`);
const { Server } = sdk('server/index.js');
const types = sdk('types.js');

const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const SILENCE = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=';

const text = (words) => ({ type: 'text', text: words });
const image = { type: 'image', data: PIXEL, mimeType: 'image/png' };
const audio = { type: 'audio', data: SILENCE, mimeType: 'audio/wav' };
const embedded = (uri, mimeType, words) => ({ type: 'resource', resource: { uri, mimeType, text: words } });
const result = (...content) => ({ content });

const object = (properties, required = Object.keys(properties)) => ({ type: 'object', properties, required });
const string = { type: 'string' };
const choice = (...values) => ({ type: 'string', enum: values });
const titled = (...pairs) => pairs.map(([value, title]) => ({ const: value, title }));

/** Sends an elicitation request to the client during a call. */
const askUser = async (call, message, requestedSchema) => {
  const request = { method: 'elicitation/create', params: { message, requestedSchema } };
  const { action, content = {} } = await call.sendRequest(request, types.ElicitResultSchema);
  return result(text(`action=${action}, content=${JSON.stringify(content)}`));
};

const askModel = async (call, prompt) => {
  const messages = [{ role: 'user', content: text(prompt) }];
  const request = { method: 'sampling/createMessage', params: { messages, maxTokens: 100 } };
  const { content } = await call.sendRequest(request, types.CreateMessageResultSchema);
  return result(text(`LLM response: ${content.text}`));
};

const defaults = object(
  {
    name: { type: 'string', default: 'John Doe' },
    age: { type: 'integer', default: 30 },
    score: { type: 'number', default: 95.5 },
    status: { ...choice('active', 'inactive', 'pending'), default: 'active' },
    verified: { type: 'boolean', default: true },
  },
  [],
);

const choices = object(
  {
    untitledSingle: choice('option1', 'option2', 'option3'),
    titledSingle: {
      type: 'string',
      oneOf: titled(['value1', 'First Option'], ['value2', 'Second Option'], ['value3', 'Third Option']),
    },
    legacyEnum: { ...choice('opt1', 'opt2', 'opt3'), enumNames: ['Option One', 'Option Two', 'Option Three'] },
    untitledMulti: { type: 'array', items: choice('option1', 'option2', 'option3') },
    titledMulti: {
      type: 'array',
      items: { anyOf: titled(['value1', 'First Choice'], ['value2', 'Second Choice'], ['value3', 'Third Choice']) },
    },
  },
  [],
);

const modernSchema = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  $defs: {
    address: { $anchor: 'addressDef', type: 'object', properties: { street: string, city: string } },
  },
  type: 'object',
  properties: {
    name: string,
    address: { $ref: '#/$defs/address' },
    contactMethod: choice('phone', 'email'),
    phone: string,
    email: string,
  },
  allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
  if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
  then: { required: ['phone'] },
  else: { required: ['email'] },
  additionalProperties: false,
};

/** Tools by name: description, input schema (default: no arguments) and function. */
const tools = {
  test_simple_text: {
    about: 'Says something',
    run: () => result(text('This is a simple text response for testing.')),
  },
  test_image_content: { about: 'Shows a pixel', run: () => result(image) },
  test_audio_content: { about: 'Plays nothing', run: () => result(audio) },
  test_embedded_resource: {
    about: 'Gives a resource',
    run: () => result(embedded('test://embedded-resource', 'text/plain', 'This is an embedded resource content.')),
  },
  test_multiple_content_types: {
    about: 'Gives three kinds of content',
    run: () => {
      const json = JSON.stringify({ test: 'data', value: 123 });
      const resource = embedded('test://mixed-content-resource', 'application/json', json);
      return result(text('Multiple content types test:'), image, resource);
    },
  },
  test_tool_with_logging: {
    about: 'Logs three lines',
    run: async (_, call) => {
      for (const data of ['Tool execution started', 'Tool processing data', 'Tool execution completed']) {
        await call.sendNotification({ method: 'notifications/message', params: { level: 'info', data } });
        await pause(50);
      }
      return result(text('logged'));
    },
  },
  test_tool_with_progress: {
    about: 'Reports progress three times',
    run: async (_, call) => {
      const progressToken = call._meta?.progressToken;
      for (const progress of progressToken === undefined ? [] : [0, 50, 100]) {
        const params = { progressToken, progress, total: 100, message: `Completed ${progress} of 100` };
        await call.sendNotification({ method: 'notifications/progress', params });
        await pause(50);
      }
      return result(text(String(progressToken)));
    },
  },
  test_error_handling: {
    about: 'Fails',
    run: () => ({ ...result(text('This tool intentionally returns an error for testing')), isError: true }),
  },
  test_sampling: {
    about: 'Asks the model',
    takes: object({ prompt: string }),
    run: ({ prompt }, call) => askModel(call, prompt),
  },
  test_elicitation: {
    about: 'Asks the user',
    takes: object({ message: string }),
    run: ({ message }, call) => askUser(call, message, object({ username: string, email: string })),
  },
  test_elicitation_sep1034_defaults: {
    about: 'Asks the user, with defaults',
    run: (_, call) => askUser(call, 'Is this right?', defaults),
  },
  test_elicitation_sep1330_enums: {
    about: 'Lets the user choose',
    run: (_, call) => askUser(call, 'Which of these?', choices),
  },
  test_reconnection: {
    about: 'Hangs up in the middle of a call',
    run: async (_, call) => {
      call.closeSSEStream?.();
      await pause(100);
      return result(text('still here'));
    },
  },
  json_schema_2020_12_tool: {
    about: 'Has a schema with the keywords of 2020-12',
    takes: modernSchema,
    run: (args) => result(text(JSON.stringify(args))),
  },
};

const resources = {
  'test://static-text': { mimeType: 'text/plain', text: 'This is the content of the static text resource.' },
  'test://static-binary': { mimeType: 'image/png', blob: PIXEL },
  'test://watched-resource': { mimeType: 'text/plain', text: 'Nothing has happened yet.' },
};

const read = (uri) => {
  const id = /^test:\/\/template\/([^/]+)\/data$/.exec(uri)?.[1];
  if (id !== undefined) {
    const data = JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` });
    return { contents: [{ uri, mimeType: 'application/json', text: data }] };
  }
  if (!(uri in resources)) throw new types.McpError(-32002, 'there is no such resource', { uri });
  return { contents: [{ uri, ...resources[uri] }] };
};

const prompts = {
  test_simple_prompt: { messages: () => [text('This is a simple prompt for testing.')] },
  test_prompt_with_arguments: {
    takes: ['arg1', 'arg2'],
    messages: ({ arg1, arg2 }) => [text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)],
  },
  test_prompt_with_embedded_resource: {
    takes: ['resourceUri'],
    messages: ({ resourceUri }) => [
      embedded(resourceUri, 'text/plain', 'Embedded resource content for testing.'),
      text('Please process the embedded resource above.'),
    ],
  },
  test_prompt_with_image: { messages: () => [image, text('Please analyze the image above.')] },
};

const known = (things, name, kind) => {
  if (!(name in things)) throw new types.McpError(types.ErrorCode.InvalidParams, `there is no ${kind} ${name}`);
  return things[name];
};

/** Creates a server for one client. */
function serve() {
  const capabilities = {
    tools: { listChanged: true },
    resources: { listChanged: true, subscribe: true },
    prompts: { listChanged: true },
    completions: {},
    logging: {},
  };
  const server = new Server(
    { name: 'conformance', version: '1.0.0' },
    { capabilities, instructions: 'Every tool is called as the suite calls it.' },
  );
  const answer = (kind, handler) => server.setRequestHandler(types[`${kind}RequestSchema`], handler);
  answer('ListTools', () => ({
    tools: Object.entries(tools).map(([name, { about, takes }]) => {
      return { name, description: about, inputSchema: takes ?? object({}) };
    }),
  }));
  answer('CallTool', ({ params }, call) => known(tools, params.name, 'tool').run(params.arguments ?? {}, call));
  answer('ListResources', () => ({
    resources: Object.entries(resources).map(([uri, { mimeType }]) => ({ uri, name: uri.slice(7), mimeType })),
  }));
  answer('ListResourceTemplates', () => ({
    resourceTemplates: [{ uriTemplate: 'test://template/{id}/data', name: 'template', mimeType: 'application/json' }],
  }));
  answer('ReadResource', ({ params }) => read(params.uri));
  answer('Subscribe', () => ({}));
  answer('Unsubscribe', () => ({}));
  answer('ListPrompts', () => ({
    prompts: Object.entries(prompts).map(([name, { takes = [] }]) => {
      const described = takes.map((argument) => ({ name: argument, description: argument, required: true }));
      return { name, description: `Prompt ${name}`, arguments: described };
    }),
  }));
  answer('GetPrompt', ({ params }) => {
    const messages = known(prompts, params.name, 'prompt').messages(params.arguments ?? {});
    return { messages: messages.map((content) => ({ role: 'user', content })) };
  });
  answer('Complete', ({ params }) => {
    const values = ['paris', 'park', 'party'].filter((word) => word.startsWith(params.argument.value));
    return { completion: { values, total: values.length, hasMore: false } };
  });
  answer('SetLevel', () => ({}));
  return server;
}

/** Stores the events of streams, so that a client can resume. */
class EventStore {
  #events = [];
  async storeEvent(stream, message) {
    this.#events.push({ stream, message });
    return String(this.#events.length);
  }
  async getStreamIdForEventId(id) {
    return this.#events[Number(id) - 1]?.stream;
  }
  async replayEventsAfter(id, { send }) {
    const { stream } = this.#events[Number(id) - 1];
    for (const [index, event] of this.#events.entries()) {
      // An event without method and id only marks the start of the stream.
      const isMessage = 'method' in event.message || 'id' in event.message;
      if (index >= Number(id) && event.stream === stream && isMessage) await send(String(index + 1), event.message);
    }
    return stream;
  }
}

async function streamable(sessions, request, response) {
  const { StreamableHTTPServerTransport } = sdk('server/streamableHttp.js');
  const id = request.headers['mcp-session-id'];
  if (id && !sessions.has(id)) return response.writeHead(404).end();
  let session = sessions.get(id);
  if (!session) {
    session = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      eventStore: new EventStore(),
      retryInterval: 500,
      onsessioninitialized: (begun) => void sessions.set(begun, session),
      onsessionclosed: (ended) => void sessions.delete(ended),
    });
    await serve().connect(session);
  }
  await session.handleRequest(request, response);
}

async function events(sessions, request, response) {
  const { SSEServerTransport } = sdk('server/sse.js');
  const { pathname, searchParams } = new URL(request.url, 'http://here');
  if (request.method === 'GET' && pathname === '/sse') {
    const session = new SSEServerTransport('/messages', response);
    sessions.set(session.sessionId, session);
    response.on('close', () => sessions.delete(session.sessionId));
    return serve().connect(session);
  }
  const session = sessions.get(searchParams.get('sessionId'));
  return session ? session.handlePostMessage(request, response) : response.writeHead(404).end();
}

/** Returns false for requests with a foreign `Host` or `Origin` (DNS rebinding). */
function isLocal({ headers }) {
  const local = (url) => URL.canParse(url) && ['127.0.0.1', 'localhost', '[::1]'].includes(new URL(url).hostname);
  return local(`http://${headers.host}`) && (headers.origin === undefined || local(headers.origin));
}

function listen(path, handle) {
  const sessions = new Map();
  const http = createServer((request, response) => {
    if (!isLocal(request)) return void response.writeHead(403).end();
    handle(sessions, request, response).catch((error) => {
      console.error(error);
      response.destroy();
    });
  });
  http.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${http.address().port}${path}`));
}

if (transport === 'http') listen('/mcp', streamable);
else if (transport === 'sse') listen('/sse', events);
else await serve().connect(new (sdk('server/stdio.js').StdioServerTransport)());
