// Webhooks by the official JavaScript client, generation 1.0: webhooks1.mjs BASE_URL
//
// The server is that of webhooks1.py. The SDK has no receiver; ours reads posts as the SDK's types,
// and verifies them.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { Role, StreamResponse } from "a2a-sdk-1";
import { ClientFactory, ClientFactoryOptions } from "a2a-sdk-1/client";
import { GrpcTransportFactory } from "a2a-sdk-1/client/grpc";
import { BINDING, drain, main, raises } from "./harness.mjs";
import { receive, SECRET } from "./receiver.mjs";

const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
  transports: [new GrpcTransportFactory()],
  preferredTransports: [BINDING],
});
const connect = (baseUrl) => new ClientFactory(options).createFromUrl(baseUrl);

function config(url, more = {}) {
  return { tenant: "", id: "", taskId: "", url, token: "", authentication: undefined, ...more };
}

function request(value, taskPushNotificationConfig, returnImmediately = false) {
  const content = { $case: "text", value };
  return {
    tenant: "",
    message: {
      messageId: randomUUID(),
      contextId: "",
      taskId: "",
      role: Role.ROLE_USER,
      parts: [{ content, metadata: undefined, filename: "", mediaType: "" }],
      metadata: undefined,
      extensions: [],
      referenceTaskIds: [],
    },
    configuration: { acceptedOutputModes: [], taskPushNotificationConfig, returnImmediately },
    metadata: undefined,
  };
}

await main(`webhooks-js1 ${BINDING}`, process.argv[2], {
  async configurations(baseUrl) {
    const client = await connect(baseUrl);
    const { id: taskId } = await client.sendMessage(request("hold:3000:3", undefined, true));
    for (const id of ["a", "b", "c"]) {
      const authentication = { scheme: "Bearer", credentials: "secret" };
      const url = `https://hooks.example/${id}`;
      const asked = config(url, { id, taskId, token: `token-${id}`, authentication });
      const made = await client.createTaskPushNotificationConfig(asked);
      assert.deepEqual([made.id, made.taskId, made.url], [id, taskId, url], "made");
      assert.equal(made.authentication.scheme, "Bearer");
    }
    const one = { tenant: "", taskId, id: "b" };
    const read = await client.getTaskPushNotificationConfig(one);
    assert.equal(read.url, "https://hooks.example/b", "read");
    const page = { tenant: "", taskId, pageSize: 2, pageToken: "" };
    const ids = [];
    for (let n = 0; n < 3; n += 1) {
      const listed = await client.listTaskPushNotificationConfig(page);
      ids.push(...listed.configs.map((each) => each.id));
      page.pageToken = listed.nextPageToken;
      if (page.pageToken === "") break;
    }
    assert.deepEqual(ids, ["a", "b", "c"], "listed");
    for (let n = 0; n < 2; n += 1) await client.deleteTaskPushNotificationConfig(one);
    await raises("TaskNotFoundError", client.getTaskPushNotificationConfig(one), "gone");
  },

  async refusals(baseUrl) {
    const client = await connect(baseUrl);
    const { id: taskId } = await client.sendMessage(request("hold:3000:3", undefined, true));
    for (const url of ["https://10.0.0.1/", "http://169.254.169.254/", "file:///etc/passwd"]) {
      const call = client.createTaskPushNotificationConfig(config(url, { taskId }));
      await raises(undefined, call, url);
    }
    const unknown = config("https://hooks.example/", { taskId: "none" });
    const call = client.createTaskPushNotificationConfig(unknown);
    await raises("TaskNotFoundError", call, "no task");
  },

  async clocksMayDiffer(baseUrl) {
    const receiver = await receive(baseUrl);
    const client = await connect(baseUrl);
    await drain(client.sendMessageStream(request("hi", config(`${receiver.origin}/clock`))));
    await receiver.wait("/clock", (all) => all.length > 0);
    receiver.close();
    for (const [seconds, isGood] of [
      [-45, true],
      [45, true],
      [-120, false],
      [400, false],
    ]) {
      const error = await receiver.verifyAgain(seconds).then(
        () => undefined,
        (refusal) => refusal,
      );
      assert.equal(error === undefined, isGood, `${seconds} s: ${error}`);
    }
  },

  async postsAreWhatAStreamSays(baseUrl) {
    const receiver = await receive(baseUrl);
    const client = await connect(baseUrl);
    for (const [path, authentication] of [
      ["/secret", { scheme: "StandardWebhooks", credentials: SECRET }],
      ["/bearer", { scheme: "Bearer", credentials: "credentials-of-ours" }],
      ["/none", undefined],
    ]) {
      const own = config(receiver.origin + path, { token: "token-of-ours", authentication });
      const events = await drain(client.sendMessageStream(request("stream:7", own)));
      const posts = await receiver.wait(path, (all) => all.length >= events.length);
      const told = posts.map((post) => StreamResponse.toJSON(StreamResponse.fromJSON(post.body)));
      assert.deepEqual(told, events.map(StreamResponse.toJSON), `posts to ${path}`);
      for (const { headers, claims } of posts) {
        assert.equal(headers["content-type"], "application/a2a+json");
        assert.equal(headers["x-a2a-notification-token"], "token-of-ours");
        assert.equal(claims.taskId, events[0].payload.value.id, "task of the JWT");
        if (path === "/bearer") {
          assert.equal(headers.authorization, "Bearer credentials-of-ours");
        }
      }
    }
    receiver.close();
  },
});
