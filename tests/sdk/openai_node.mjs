// The official OpenAI client for Node against a gateway. Arguments: SCENARIO BASE_URL MODEL [SIM_ADMIN].

import OpenAI, { toFile } from "openai";

const connect = (baseURL, options = {}) => new OpenAI({ baseURL, apiKey: "key-of-the-client", ...options });
const ask = (content) => [{ role: "user", content }];
const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

function described(error) {
  return {
    class: error.constructor.name,
    kinds: kindsOf(error),
    status: error.status ?? null,
    code: error.code ?? null,
    type: error.type ?? null,
    param: error.param ?? null,
    message: error.message,
    body: error.error ?? null,
    request_id: error.requestID ?? null,
    retry_after: error.headers?.get?.("retry-after") ?? null,
  };
}

function kindsOf(error) {
  const kinds = [];
  for (let kind = error.constructor; kind?.name; kind = Object.getPrototypeOf(kind)) kinds.push(kind.name);
  return kinds;
}

// The error that a call ends in; nothing but the result when it ends well, which the test then shows.
async function failureOf(call) {
  try {
    return { ended_well: (await call()) ?? null };
  } catch (error) {
    return described(error);
  }
}

async function millisecondsUntilGone(simAdmin, requestId) {
  const began = performance.now();
  let mine = [];
  while (performance.now() - began < 10_000) {
    const { requests } = await (await fetch(`http://${simAdmin}/sim/requests`)).json();
    const isMine = ([name, value]) => name === "x-request-id" && value === requestId;
    mine = requests.filter((request) => request.headers.some(isMine));
    if (mine.at(-1)?.outcome === "client_gone") return performance.now() - began;
    await pause(5);
  }
  throw new Error(`the model server still works on ${requestId}: ${JSON.stringify(mine)}`);
}

// A chat stream, read to its end.
async function collected(call) {
  const { data: stream, response } = await call.withResponse();
  const seen = { text: "", usage: null, finish: null, chunks: 0, request_id: response.headers.get("x-request-id") };
  for await (const chunk of stream) {
    seen.chunks += 1;
    seen.usage = chunk.usage ?? seen.usage;
    for (const choice of chunk.choices) {
      seen.text += choice.delta.content ?? "";
      seen.finish = choice.finish_reason ?? seen.finish;
    }
  }
  return seen;
}

async function apis(baseURL, model) {
  const client = connect(baseURL);
  const chats = client.chat.completions;
  const chat = await chats.create({ model, messages: ask("Hello"), max_tokens: 12 });
  const withUsage = { stream: true, stream_options: { include_usage: true } };
  const streamed = await collected(chats.create({ model, messages: ask("Hi"), max_tokens: 9, ...withUsage }));
  const silent = await collected(chats.create({ model, messages: ask("Hey"), max_tokens: 7, stream: true }));
  const completion = await client.completions.create({ model, prompt: "Once", max_tokens: 5 });
  const embeddings = await client.embeddings.create({ model, input: ["one", "two"] });
  const response = await client.responses.create({ model, input: "Hello there", max_output_tokens: 8 });
  const events = [];
  const stream = await client.responses.create({ model, input: "Hello", max_output_tokens: 4, stream: true });
  for await (const event of stream) events.push(event.type);
  const file = await toFile(Buffer.concat([Buffer.from("RIFF"), Buffer.alloc(4000)]), "a.wav");
  const speech = await client.audio.transcriptions.create({ model, file });
  const adapter = await chats.create({ model: "sql-adapter", messages: ask("SELECT"), max_tokens: 3 });
  const models = [];
  for await (const entry of client.models.list()) models.push(entry.id);
  const retrieved = [];
  for (const name of [model, "sql-adapter"]) retrieved.push((await client.models.retrieve(name)).id);
  return {
    chat: {
      text: chat.choices[0].message.content,
      usage: chat.usage,
      model: chat.model,
      request_id: chat._request_id,
    },
    streamed,
    silent,
    completion: { text: completion.choices[0].text, usage: completion.usage, request_id: completion._request_id },
    embeddings: {
      count: embeddings.data.length,
      numbers: embeddings.data[0].embedding.length,
      are_numbers: embeddings.data[1].embedding.every((number) => typeof number === "number"),
      request_id: embeddings._request_id,
    },
    response: { text: response.output_text, status: response.status, request_id: response._request_id },
    response_events: events,
    speech: { text: speech.text, request_id: speech._request_id },
    adapter: { model: adapter.model, request_id: adapter._request_id },
    models: models.sort(),
    retrieved,
  };
}

async function failures(baseURL, model) {
  const client = connect(baseURL, { maxRetries: 0 });
  const chat = (text, name = model, options = {}) =>
    failureOf(() => client.chat.completions.create({ model: name, messages: ask(text), ...options }));
  const chunks = async (text) => {
    let texts = 0;
    const failure = await failureOf(async () => {
      const stream = { model, messages: ask(text), max_tokens: 400, stream: true };
      for await (const chunk of await client.chat.completions.create(stream)) {
        texts += chunk.choices.filter((choice) => choice.delta.content).length;
      }
    });
    return { ...failure, texts };
  };
  const nobody = connect("http://127.0.0.1:1/v1", { maxRetries: 0 });
  return {
    unknown_model: await chat("hi", "nobody"),
    no_model: await chat("hi", ""),
    engine_refuses: await chat("hi", model, { max_tokens: -1 }),
    too_large: await chat("x".repeat(300_000)),
    unknown_path: await failureOf(() => client.files.list()),
    unknown_model_retrieved: await failureOf(() => client.models.retrieve("no/body")),
    pool_full: await chat("hi", "full"),
    unreachable: await chat("hi", "down"),
    upstream_500: await chat("fault 500"),
    broke: await chat("fault reset"),
    timed_out: await chat("fault hang"),
    cut_stream: await chunks("fault cut"),
    stalled_stream: await chunks("fault stall"),
    error_event: await chunks("fault event"),
    upstream_503: await chat("fault 503"),
    upstream_429: await chat("fault 429"),
    nobody_there: await failureOf(() => nobody.models.list()),
  };
}

async function retries(baseURL, model) {
  const client = connect(baseURL);
  const chat = async (text, name = model) =>
    (await client.chat.completions.create({ model: name, messages: ask(text), max_tokens: 3 }))._request_id;
  const seen = {
    after_429: await chat("again after 429"),
    after_500: await chat("again after 500"),
    after_reset: await chat("again after reset"),
    told_not_to: await failureOf(() => chat("hi", "strict")),
  };
  const began = performance.now();
  await failureOf(() => chat("hi", "down"));
  return { ...seen, down_ms: performance.now() - began };
}

async function leaving(baseURL, model, simAdmin) {
  const client = connect(baseURL, { maxRetries: 0 });
  const gone = {};
  const chat = (name, text, body = {}, options = {}) => {
    const request = { model, messages: ask(text), max_tokens: 400, ...body };
    return client.chat.completions.create(request, { headers: { "x-request-id": name }, ...options });
  };
  const timeout = await failureOf(() => chat("left-by-timeout", "fault hang", {}, { timeout: 500 }));
  gone["left-by-timeout"] = await millisecondsUntilGone(simAdmin, "left-by-timeout");

  let number = 0;
  for await (const chunk of await chat("left-stream", "fault slow", { stream: true })) {
    number += chunk.choices.length;
    if (number > 2) break;
  }
  gone["left-stream"] = await millisecondsUntilGone(simAdmin, "left-stream");

  const controller = new AbortController();
  const call = failureOf(() => chat("left-by-cancel", "fault hang", {}, { signal: controller.signal }));
  await pause(500);
  controller.abort();
  await call;
  gone["left-by-cancel"] = await millisecondsUntilGone(simAdmin, "left-by-cancel");
  return { timeout, gone_ms: gone };
}

async function concurrent(baseURL, model) {
  const client = connect(baseURL, { maxRetries: 0 });
  const one = async (number) => {
    const request = { model, messages: ask(`${number}: hello`), max_tokens: 20 };
    if (number % 2) return (await client.chat.completions.create(request)).choices[0].message.content;
    return (await collected(client.chat.completions.create({ ...request, stream: true }))).text;
  };
  return { texts: await Promise.all(Array.from({ length: 24 }, (_, number) => one(number))) };
}

const scenarios = { apis, failures, retries, leaving, concurrent };
const [scenario, ...rest] = process.argv.slice(2);
console.log(JSON.stringify(await scenarios[scenario](...rest)));
