// Pages of Debian's Chromium at a server of another origin: browser.mjs BASE_URL
//
// The server allows the pages of PAGE_ORIGIN and has callers (callers.toml). It runs with
// `--cors-credentials` if CORS_CREDENTIALS is `yes`.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { chromium } from "playwright-core";
import { main } from "./harness.mjs";
import { ROBOT, bearer, tokenOf } from "./provider.mjs";

const ORIGIN = process.env.PAGE_ORIGIN;
const HAS_CREDENTIALS = process.env.CORS_CREDENTIALS === "yes";
/** The extension in the agent's card. */
const EXTENSION = "https://agents.example/extensions/none";
const VERSION = { "A2A-Version": "1.0", "Content-Type": "application/json" };
const FLAGS = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"].concat(
  ["--disable-background-networking", "--disable-component-update"],
);

/** Serves an empty page at a port of loopback, 0 for any free one, and returns its origin. */
async function serve(port) {
  const server = createServer((_, response) => {
    const type = { "Content-Type": "text/html" };
    response.writeHead(200, type).end("<!doctype html><title>A page</title>");
  });
  await new Promise((resolve) => server.listen(port, "127.0.0.1", resolve));
  return `http://127.0.0.1:${server.address().port}`;
}

assert.equal(await serve(Number(new URL(ORIGIN).port)), ORIGIN);
const elsewhere = await serve(0);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  chromiumSandbox: false,
  args: FLAGS,
});

/** A page of an origin, in its own profile, and the preflights that it has sent. */
async function open(origin) {
  const context = await browser.newContext();
  const page = await context.newPage();
  const taken = { page, preflights: 0 };
  const devtools = await context.newCDPSession(page);
  await devtools.send("Network.enable");
  devtools.on("Network.requestWillBeSent", ({ initiator }) => {
    if (initiator.type === "preflight") taken.preflights += 1;
  });
  await page.goto(origin);
  return taken;
}

const pages = { [ORIGIN]: await open(ORIGIN), [elsewhere]: await open(elsewhere) };

/** Runs a function in a page and returns its result and its preflights. */
async function inPage(origin, run, argument) {
  const taken = pages[origin];
  const before = taken.preflights;
  const result = await taken.page.evaluate(run, argument);
  return { result, preflights: taken.preflights - before };
}

/** In the page: the result of `fetch`, or the name of its error. */
async function ask({ url, ...init }) {
  try {
    const response = await fetch(url, init);
    return {
      status: response.status,
      fields: Object.fromEntries(response.headers),
      body: await response.text(),
    };
  } catch (error) {
    return { error: error.name };
  }
}

const send = (text) => ({
  message: { messageId: crypto.randomUUID(), role: "ROLE_USER", parts: [{ text }] },
});

/** A JSON-RPC call as arguments of `ask`. */
function call(url, method, params, fields) {
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });
  return { url, method: "POST", body, headers: { ...VERSION, ...fields } };
}

const known = async () => bearer(await tokenOf("alice"));

/** In the page: the events of a stream, with their ids, up to a number of events. */
async function read({ url, most, ...init }) {
  const response = await fetch(url, init);
  const type = response.headers.get("Content-Type");
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const events = [];
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return { status: response.status, type, events, rest };
    const blocks = (rest + value).split(/\r?\n\r?\n/);
    rest = blocks.pop();
    for (const block of blocks) {
      const lines = block.split(/\r?\n/).map((line) => line.split(/: ?(.*)/s));
      const of = (name) => lines.filter(([n]) => n === name).map(([, text]) => text).join("\n");
      if (of("data") !== "") events.push({ id: of("id"), data: JSON.parse(of("data")) });
      if (events.length === most) {
        await reader.cancel();
        return { status: response.status, type, events, rest };
      }
    }
  }
}

/** In the page: opens a WebSocket, makes a call over it and returns the answer. */
function overWebSocket({ url, protocols, text }) {
  return new Promise((resolve) => {
    const socket = new WebSocket(url, protocols);
    socket.onopen = () => socket.send(text);
    socket.onmessage = ({ data }) => {
      resolve({ protocol: socket.protocol, answer: JSON.parse(data) });
      socket.close();
    };
    socket.onclose = ({ code }) => resolve({ code });
  });
}

const socketUrl = (baseUrl) => `${baseUrl.replace("http", "ws")}/`;
const completed = (event) => JSON.stringify(event).includes("TASK_STATE_COMPLETED");

const cases = {
  async aPageSendsBehindAPreflight(baseUrl) {
    const fields = {
      ...(await known()),
      "A2A-Extensions": EXTENSION,
      "Last-Event-ID": "1",
    };
    const { result, preflights } = await inPage(
      ORIGIN,
      ask,
      call(baseUrl, "SendMessage", send("from a page"), fields),
    );
    assert.equal(result.status, 200, JSON.stringify(result));
    assert.equal(preflights, 1, "preflights");
    const { task } = JSON.parse(result.body).result;
    assert.equal(task.status.state, "TASK_STATE_COMPLETED");
    assert.equal(result.fields["a2a-extensions"], EXTENSION, "readable");
    const again = call(baseUrl, "SendMessage", send("from a page"), fields);
    assert.equal((await inPage(ORIGIN, ask, again)).preflights, 0, "it is remembered");
    const get = { url: `${baseUrl}/tasks/${task.id}`, headers: { ...VERSION, ...(await known()) } };
    const got = await inPage(ORIGIN, ask, get);
    assert.equal(JSON.parse(got.result.body).id, task.id, "over HTTP+JSON");
  },

  async aPageShowsAKey(baseUrl) {
    const of = (fields) => inPage(ORIGIN, ask, call(baseUrl, "ListTasks", {}, fields));
    assert.equal((await of(ROBOT)).result.status, 200);
    assert.equal((await of({ "X-API-Key": "wrong" })).result.status, 401);
  },

  async aPageReadsThatItIsNotKnown(baseUrl) {
    const { result } = await inPage(ORIGIN, ask, call(baseUrl, "SendMessage", send("x"), {}));
    assert.equal(result.status, 401);
    assert.match(result.fields["www-authenticate"], /^Bearer realm="a2a"/, "readable");
    assert.match(JSON.parse(result.body).error.message, /Authentication is required/);
    const absent = await inPage(ORIGIN, ask, { url: `${baseUrl}/nothing/here` });
    assert.equal(absent.result.status, 404, "a path where nothing is");
  },

  async aPageReadsACardAndAsksWhetherItIsNew(baseUrl) {
    const url = `${baseUrl}/.well-known/agent-card.json`;
    const { result } = await inPage(ORIGIN, ask, { url });
    assert.equal(result.status, 200);
    assert.ok(JSON.parse(result.body).securitySchemes.openid, "schemes");
    const headers = { "If-None-Match": result.fields.etag };
    const again = await inPage(ORIGIN, ask, { url, headers, cache: "no-store" });
    assert.equal(again.result.status, 304, "still the same");
  },

  async aPageReadsAStreamAndTakesItUpAgain(baseUrl) {
    const stream = call(baseUrl, "SendStreamingMessage", send("stream:5"), await known());
    const { result } = await inPage(ORIGIN, read, stream);
    assert.equal(result.status, 200);
    assert.match(result.type, /^text\/event-stream/);
    assert.ok(result.events.length > 5, `${result.events.length} events`);
    assert.ok(completed(result.events.at(-1)), "the last one");

    const held = call(baseUrl, "SendStreamingMessage", send("hold:1000:6"), await known());
    const cut = (await inPage(ORIGIN, read, { ...held, most: 2 })).result.events;
    const { id } = cut[0].data.result.task;
    const fields = { ...(await known()), "Last-Event-ID": cut.at(-1).id };
    const { result: rest } = await inPage(ORIGIN, read, {
      ...call(baseUrl, "SubscribeToTask", { id }, fields),
    });
    assert.ok(completed(rest.events.at(-1)), `the rest: ${JSON.stringify(rest)}`);
    const ids = [...cut, ...rest.events].map((event) => Number(event.id));
    const isNext = (number, at) => at === 0 || number > ids[at - 1];
    assert.ok(ids.every(isNext), `nothing twice: ${ids}`);
  },

  async anEventSourceReadsAnOpenAgent(baseUrl) {
    const open = `${baseUrl}/agents/open`;
    const configuration = { returnImmediately: true };
    const params = { ...send("hold:1500:3"), configuration };
    const sent = await inPage(ORIGIN, ask, call(open, "SendMessage", params, {}));
    const { id } = JSON.parse(sent.result.body).result.task;
    const listen = (url) =>
      new Promise((resolve) => {
        const source = new EventSource(url);
        const events = [];
        source.onmessage = ({ data }) => events.push(data);
        source.onerror = () => {
          source.close();
          resolve(events);
        };
      });
    const url = `${open}/tasks/${id}:subscribe?A2A-Version=1.0`;
    const { result } = await inPage(ORIGIN, listen, url);
    assert.ok(completed(result.at(-1)), `events: ${result}`);
  },

  async aPageOfAnotherOriginReadsNothing(baseUrl) {
    const fields = await known();
    const behind = await inPage(elsewhere, ask, call(baseUrl, "ListTasks", {}, fields));
    assert.deepEqual(behind, { result: { error: "TypeError" }, preflights: 1 });
    const card = { url: `${baseUrl}/.well-known/agent-card.json` };
    const simple = await inPage(elsewhere, ask, card);
    assert.deepEqual(simple, { result: { error: "TypeError" }, preflights: 0 });
    const blind = await inPage(elsewhere, ask, { ...card, mode: "no-cors" });
    assert.equal(blind.result.body, "", "nothing of it can be seen");
  },

  async credentialsOfTheBrowserAreAsTheServerSays(baseUrl) {
    const list = { ...call(baseUrl, "ListTasks", {}, await known()), credentials: "include" };
    const { result } = await inPage(ORIGIN, ask, list);
    if (HAS_CREDENTIALS) assert.equal(result.status, 200, JSON.stringify(result));
    else assert.deepEqual(result, { error: "TypeError" });
    const other = await inPage(elsewhere, ask, list);
    assert.deepEqual(other.result, { error: "TypeError" }, "of another origin");
  },

  async aPageOpensAWebSocketWithItsToken(baseUrl) {
    const url = socketUrl(baseUrl);
    const { body: text } = call(url, "SendMessage", send("over a socket"));
    const protocols = ["a2a", `a2a.bearer.${await tokenOf("alice")}`];
    const { result } = await inPage(ORIGIN, overWebSocket, { url, protocols, text });
    assert.equal(result.protocol, "a2a", JSON.stringify(result));
    assert.equal(result.answer.result.task.status.state, "TASK_STATE_COMPLETED");
    for (const [origin, what, offered] of [
      [ORIGIN, "without a token", ["a2a"]],
      [ORIGIN, "with a wrong one", ["a2a", "a2a.bearer.wrong"]],
      [elsewhere, "of another origin", protocols],
    ]) {
      const refused = await inPage(origin, overWebSocket, { url, protocols: offered, text });
      assert.deepEqual(refused.result, { code: 1006 }, what);
    }
  },
};

await main("browser", process.argv[2], cases);
