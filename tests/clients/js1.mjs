// The official JavaScript client, generation 1.0, against a running echo agent: js1.mjs BASE_URL

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { Role, TaskState, taskStateToJSON } from "a2a-sdk-1";
import { ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver } from "a2a-sdk-1/client";
import { GrpcTransportFactory } from "a2a-sdk-1/client/grpc";
import { BINDING, checkStream, drain, main, raises } from "./harness.mjs";

const text = (value) => part("text", value);

function part($case, value, extra = {}) {
  return { content: { $case, value }, metadata: undefined, filename: "", mediaType: "", ...extra };
}

/** Params of a send; the SDK's types require every member. */
function request(parts, { atOnce = false, ...ids } = {}) {
  return {
    tenant: "",
    message: {
      messageId: randomUUID(),
      contextId: "",
      taskId: "",
      role: Role.ROLE_USER,
      parts,
      metadata: undefined,
      extensions: [],
      referenceTaskIds: [],
      ...ids,
    },
    configuration: {
      acceptedOutputModes: [],
      taskPushNotificationConfig: undefined,
      returnImmediately: atOnce,
    },
    metadata: undefined,
  };
}

const byId = (id) => ({ tenant: "", id, metadata: undefined });
const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
  transports: [new GrpcTransportFactory()],
  preferredTransports: [BINDING],
});
const connect = (baseUrl) => new ClientFactory(options).createFromUrl(baseUrl);

function stateName(state) {
  return taskStateToJSON(state).replace("TASK_STATE_", "").toLowerCase().replace("_", "-");
}

/** Names of the events for `checkStream`; the first must be the task. */
function stepsOf(events) {
  assert.equal(events[0].payload.$case, "task", "first event");
  const first = events[0].payload.value;
  const steps = [stateName(first.status.state)];
  for (const { payload } of events.slice(1)) {
    assert.equal(payload.value.taskId, first.id, "task id of an event");
    assert.equal(payload.value.contextId, first.contextId, "context id of an event");
    if (payload.$case === "artifactUpdate") {
      steps.push("artifact");
    } else {
      assert.equal(payload.$case, "statusUpdate", "kind of an event");
      steps.push(stateName(payload.value.status.state));
    }
  }
  return steps;
}

const textOf = (artifacts) =>
  artifacts.flatMap((a) => a.parts.map((p) => p.content.value)).join("");

const streamedText = (events) =>
  textOf(
    events
      .filter((e) => e.payload.$case === "artifactUpdate")
      .map((e) => e.payload.value.artifact),
  );

async function heldTask(client, words) {
  const task = await client.sendMessage(request([text(words)], { atOnce: true }));
  assert.match(stateName(task.status.state), /^(submitted|working)$/, "held task");
  return task;
}

await main("js1", process.argv[2], {
  async card(baseUrl) {
    const card = await new DefaultAgentCardResolver().resolve(baseUrl);
    assert.ok(card.name && card.version && card.skills.length > 0, "card is filled in");
    assert.equal(card.capabilities.streaming, true, "streaming");
    const [first] = card.supportedInterfaces;
    assert.equal(`${first.protocolBinding} ${first.protocolVersion}`, "JSONRPC 1.0");
    const client = await connect(baseUrl);
    assert.equal(client.protocolVersion, "1.0", "version in use");
    assert.equal((await client.getAgentCard()).name, card.name, "extended card, if any");
  },

  async sendEchoesEveryKindOfPart(baseUrl) {
    const bytes = Buffer.from([...Array(256).keys()]);
    const parts = [
      text('héllo "wörld" \\ \u2028 🦅'),
      part("data", { k: [1, 2.5, null, true, { n: "v" }] }),
      part("raw", bytes, { filename: "all.bin", mediaType: "application/octet-stream" }),
      part("url", "https://example.com/o.txt", { filename: "o.txt", mediaType: "text/plain" }),
    ];
    const client = await connect(baseUrl);
    const task = await client.sendMessage(request(parts));
    assert.equal(stateName(task.status.state), "completed");
    assert.equal(task.artifacts.length, 1, "artifacts");
    const plain = (list) =>
      list.map((p) => [p.content.$case, p.filename, p.mediaType, plainValue(p.content.value)]);
    const plainValue = (v) => (Buffer.isBuffer(v) ? v.toString("hex") : v);
    assert.deepEqual(plain(task.artifacts[0].parts), plain(parts));
  },

  async pingIsAnsweredByAMessage(baseUrl) {
    const client = await connect(baseUrl);
    const reply = await client.sendMessage(request([text("ping")]));
    assert.equal(reply.role, Role.ROLE_AGENT, "role");
    assert.deepEqual(reply.parts.map((p) => p.content.value), ["pong"]);
    const events = await drain(client.sendMessageStream(request([text("ping")])));
    assert.equal(events.length, 1, "events");
    assert.equal(events[0].payload.value.parts[0].content.value, "pong");
  },

  async stream(baseUrl) {
    const client = await connect(baseUrl);
    const events = await drain(client.sendMessageStream(request([text("stream:7")])));
    checkStream(stepsOf(events), 5);
    const task = await client.getTask(byId(events[0].payload.value.id));
    assert.equal(stateName(task.status.state), "completed");
    assert.equal(textOf(task.artifacts), streamedText(events), "stored text");
  },

  async getTask(baseUrl) {
    const client = await connect(baseUrl);
    const sent = request([text("remember me")]);
    const made = await client.sendMessage(sent);
    const task = await client.getTask(byId(made.id));
    assert.equal(task.id, made.id);
    assert.equal(task.contextId, made.contextId);
    assert.equal(textOf(task.artifacts), "remember me");
    assert.equal(task.history[0].messageId, sent.message.messageId, "history");
    const bare = await client.getTask({ ...byId(made.id), historyLength: 0 });
    assert.equal(bare.history.length, 0, "history of length 0");
  },

  async listPagesNewestFirst(baseUrl) {
    const client = await connect(baseUrl);
    const contextId = `ctx-${randomUUID()}`;
    const made = [];
    for (let n = 0; n < 5; n += 1) {
      made.push((await client.sendMessage(request([text(`n${n}`)], { contextId }))).id);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    const query = {
      tenant: "",
      contextId,
      status: TaskState.TASK_STATE_UNSPECIFIED,
      pageSize: 2,
      pageToken: "",
      statusTimestampAfter: undefined,
    };
    const seen = [];
    for (let n = 0; n < 5; n += 1) {
      const page = await client.listTasks(query);
      assert.equal(page.totalSize, 5, "total size");
      seen.push(...page.tasks.map((t) => t.id));
      query.pageToken = page.nextPageToken;
      if (query.pageToken === "") break;
    }
    assert.deepEqual(seen, made.reverse(), "order of the pages");
  },

  async cancel(baseUrl) {
    const client = await connect(baseUrl);
    const task = await heldTask(client, "hold:3000:3");
    const gone = await client.cancelTask(byId(task.id));
    assert.equal(gone.id, task.id);
    assert.equal(stateName(gone.status.state), "canceled");
    const after = await client.getTask(byId(task.id));
    assert.equal(stateName(after.status.state), "canceled", "stored state");
    const done = await client.sendMessage(request([text("done")]));
    await raises("TaskNotCancelableError", client.cancelTask(byId(done.id)), "completed task");
  },

  async resubscribeSeesTheRest(baseUrl) {
    const client = await connect(baseUrl);
    const task = await heldTask(client, "hold:1000:6");
    const both = [1, 2].map(() => drain(client.resubscribeTask(byId(task.id))));
    const [one, two] = await Promise.all(both);
    assert.equal(one[0].payload.value.id, task.id, "task");
    checkStream(stepsOf(one), 4);
    assert.deepEqual(two, one, "both subscribers see the same");
    const stored = await client.getTask(byId(task.id));
    assert.equal(textOf(stored.artifacts), streamedText(one), "stored text");
  },

  async errors(baseUrl) {
    const client = await connect(baseUrl);
    const absent = byId("no-such-task");
    await raises("TaskNotFoundError", client.getTask(absent), "get");
    await raises("TaskNotFoundError", client.cancelTask(absent), "cancel");
    await raises("TaskNotFoundError", drain(client.resubscribeTask(absent)), "subscribe");
    const follow = request([text("x")], { taskId: absent.id });
    await raises("TaskNotFoundError", client.sendMessage(follow), "send");
    await raises("TaskNotFoundError", drain(client.sendMessageStream(follow)), "stream");
  },
});
