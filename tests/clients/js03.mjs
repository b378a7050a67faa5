// The official JavaScript client, generation 0.3, against a running echo agent: js03.mjs BASE_URL

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver } from "a2a-sdk-03/client";
import { GrpcTransportFactory } from "a2a-sdk-03/client/grpc";
import { BINDING, checkStream, drain, main, raises } from "./harness.mjs";

const text = (value) => ({ kind: "text", text: value });

function params(parts, { blocking = true, ...ids } = {}) {
  return {
    message: { kind: "message", messageId: randomUUID(), role: "user", parts, ...ids },
    configuration: { blocking },
  };
}

const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
  transports: [new GrpcTransportFactory()],
  preferredTransports: [BINDING],
});
const connect = (baseUrl) => new ClientFactory(options).createFromUrl(baseUrl);

/** Names of the events for `checkStream`; the first must be the task. */
function stepsOf(events) {
  const [first, ...rest] = events;
  assert.equal(first.kind, "task", "first event");
  const steps = [first.status.state];
  for (const event of rest) {
    assert.equal(event.taskId, first.id, "task id of an event");
    assert.equal(event.contextId, first.contextId, "context id of an event");
    assert.match(event.kind, /^(status|artifact)-update$/, "kind of an event");
    steps.push(event.kind === "artifact-update" ? "artifact" : event.status.state);
  }
  const finals = rest.filter((e) => e.kind === "status-update").map((e) => e.final);
  assert.deepEqual(finals, finals.map((_, i) => i === finals.length - 1), "only the last is final");
  return steps;
}

const textOf = (artifacts) => artifacts.flatMap((a) => a.parts.map((p) => p.text)).join("");

const streamedText = (events) =>
  textOf(events.filter((e) => e.kind === "artifact-update").map((e) => e.artifact));

async function heldTask(client, words) {
  const task = await client.sendMessage(params([text(words)], { blocking: false }));
  assert.match(task.status.state, /^(submitted|working)$/, "held task");
  return task;
}

await main("js03", process.argv[2], {
  async card(baseUrl) {
    const card = await new DefaultAgentCardResolver().resolve(baseUrl);
    assert.ok(card.name && card.version && card.url, "card is filled in");
    assert.match(card.protocolVersion, /^0\.3/, "version");
    assert.equal(card.preferredTransport, "JSONRPC", "preferred transport");
    assert.equal(card.capabilities.streaming, true, "streaming");
    const old = await new DefaultAgentCardResolver().resolve(baseUrl, ".well-known/agent.json");
    assert.deepEqual(old, card, "the card of the older path");
  },

  async sendEchoesEveryKindOfPart(baseUrl) {
    const bytes = Buffer.from([...Array(256).keys()]).toString("base64");
    // This client fails to write null as a message.
    const nothing = BINDING === "GRPC" ? [] : [null];
    const parts = [
      text('héllo "wörld" \\ \u2028 🦅'),
      { kind: "data", data: { k: [1, 2.5, ...nothing, true, { n: "v" }] } },
      { kind: "file", file: { bytes, name: "all.bin", mimeType: "application/octet-stream" } },
      {
        kind: "file",
        file: { uri: "https://example.com/o.txt", name: "o.txt", mimeType: "text/plain" },
      },
    ];
    const client = await connect(baseUrl);
    const task = await client.sendMessage(params(parts));
    assert.equal(task.kind, "task");
    assert.equal(task.status.state, "completed");
    assert.equal(task.artifacts.length, 1, "artifacts");
    if (BINDING !== "JSONRPC") {
      // The proto of this client has no file names, so it neither sends nor reads them.
      parts.forEach((part) => delete part.file?.name);
    }
    assert.deepEqual(task.artifacts[0].parts, parts);
  },

  async pingIsAnsweredByAMessage(baseUrl) {
    const client = await connect(baseUrl);
    const reply = await client.sendMessage(params([text("ping")]));
    assert.equal(reply.kind, "message");
    assert.equal(reply.role, "agent");
    assert.deepEqual(reply.parts.map((p) => p.text), ["pong"]);
    const events = await drain(client.sendMessageStream(params([text("ping")])));
    assert.equal(events.length, 1, "events");
    assert.equal(events[0].parts[0].text, "pong");
  },

  async stream(baseUrl) {
    const client = await connect(baseUrl);
    const events = await drain(client.sendMessageStream(params([text("stream:7")])));
    checkStream(stepsOf(events), 5);
    const task = await client.getTask({ id: events[0].id });
    assert.equal(task.status.state, "completed");
    assert.equal(textOf(task.artifacts), streamedText(events), "stored text");
  },

  async getTask(baseUrl) {
    const client = await connect(baseUrl);
    const contextId = `ctx-${randomUUID()}`;
    const sent = params([text("remember me")], { contextId });
    const made = await client.sendMessage(sent);
    assert.equal(made.contextId, contextId);
    const task = await client.getTask({ id: made.id, historyLength: 1 });
    assert.equal(task.id, made.id);
    assert.equal(textOf(task.artifacts), "remember me");
    assert.deepEqual(task.history.map((m) => m.messageId), [sent.message.messageId]);
  },

  async cancel(baseUrl) {
    const client = await connect(baseUrl);
    const task = await heldTask(client, "hold:3000:3");
    const gone = await client.cancelTask({ id: task.id });
    assert.equal(gone.id, task.id);
    assert.equal(gone.status.state, "canceled");
    assert.equal((await client.getTask({ id: task.id })).status.state, "canceled");
    const again = client.cancelTask({ id: task.id });
    await raises("TaskNotCancelableError", again, "second cancel");
  },

  async resubscribeSeesTheRest(baseUrl) {
    const client = await connect(baseUrl);
    const task = await heldTask(client, "hold:1000:6");
    const both = [1, 2].map(() => drain(client.resubscribeTask({ id: task.id })));
    const [one, two] = await Promise.all(both);
    assert.equal(one[0].id, task.id, "task");
    checkStream(stepsOf(one), 4);
    assert.deepEqual(two, one, "both subscribers see the same");
    const stored = await client.getTask({ id: task.id });
    assert.equal(textOf(stored.artifacts), streamedText(one), "stored text");
  },

  async errors(baseUrl) {
    const client = await connect(baseUrl);
    const absent = { id: "no-such-task" };
    await raises("TaskNotFoundError", client.getTask(absent), "get");
    await raises("TaskNotFoundError", client.cancelTask(absent), "cancel");
    // This client cannot read an error that is not a stream: any error will do.
    await raises(undefined, drain(client.resubscribeTask(absent)), "resubscribe");
  },
});
