// Webhooks by the official JavaScript client, generation 0.3: webhooks03.mjs BASE_URL
//
// The server is that of webhooks1.py.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { ClientFactory, ClientFactoryOptions } from "a2a-sdk-03/client";
import { GrpcTransportFactory } from "a2a-sdk-03/client/grpc";
import { BINDING, main, raises } from "./harness.mjs";
import { receive, SECRET } from "./receiver.mjs";

const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
  transports: [new GrpcTransportFactory()],
  preferredTransports: [BINDING],
});
const connect = (baseUrl) => new ClientFactory(options).createFromUrl(baseUrl);

function params(text, configuration) {
  const parts = [{ kind: "text", text }];
  const message = { kind: "message", messageId: randomUUID(), role: "user", parts };
  return { message, configuration };
}

await main(`webhooks-js03 ${BINDING}`, process.argv[2], {
  async configurations(baseUrl) {
    const client = await connect(baseUrl);
    const { id: taskId } = await client.sendMessage(params("hold:3000:3", { blocking: false }));
    for (const id of ["a", "b"]) {
      const authentication = { schemes: ["Bearer"], credentials: "secret" };
      const url = `https://hooks.example/${id}`;
      const pushNotificationConfig = { id, url, token: "t", authentication };
      const made = await client.setTaskPushNotificationConfig({ taskId, pushNotificationConfig });
      assert.equal(made.pushNotificationConfig.url, url, "made");
    }
    const one = { id: taskId, pushNotificationConfigId: "b" };
    const read = await client.getTaskPushNotificationConfig(one);
    assert.equal(read.taskId, taskId, "task");
    assert.equal(read.pushNotificationConfig.id, "b", "read");
    const listed = await client.listTaskPushNotificationConfig({ id: taskId });
    assert.deepEqual(listed.map((each) => each.pushNotificationConfig.id), ["a", "b"], "listed");
    await client.deleteTaskPushNotificationConfig(one);
    await raises(undefined, client.getTaskPushNotificationConfig(one), "gone");
  },

  async tasksArePosted(baseUrl) {
    const receiver = await receive(baseUrl);
    const client = await connect(baseUrl);
    for (const [path, authentication] of [
      ["/secret", { schemes: ["StandardWebhooks"], credentials: SECRET }],
      ["/bearer", { schemes: ["Bearer"], credentials: "credentials-of-ours" }],
      ["/none", undefined],
    ]) {
      const pushNotificationConfig = { url: receiver.origin + path, token: "token-of-ours" };
      if (authentication) pushNotificationConfig.authentication = authentication;
      const configuration = { blocking: true, pushNotificationConfig };
      const sent = await client.sendMessage(params("stream:7", configuration));
      const isDone = (all) => all.at(-1)?.body.status.state === "completed";
      const posts = await receiver.wait(path, isDone);
      for (const { headers, claims, body } of posts) {
        assert.equal(body.kind, "task", "kind");
        assert.equal(body.id, sent.id, "task");
        assert.equal(claims.taskId, sent.id, "task of the JWT");
        assert.equal(headers["x-a2a-notification-token"], "token-of-ours");
        if (path === "/bearer") {
          assert.equal(headers.authorization, "Bearer credentials-of-ours");
        }
      }
      const texts = (task) => task.artifacts.flatMap((one) => one.parts.map((part) => part.text));
      assert.deepEqual(texts(posts.at(-1).body), texts(sent), "artifacts");
    }
    receiver.close();
  },
});
