// The agent of the peers on the official JavaScript SDK of 0.3: js03.mjs
//
// Two variants on separate ports: `plain`, and `guarded`, which requires a key. Prints their URLs
// as one line of JSON when both are ready.

import {
  DefaultRequestHandler,
  DefaultExecutionEventBusManager,
  InMemoryPushNotificationStore,
  InMemoryTaskStore,
} from "a2a-sdk-03/server";
import { agentCardHandler, jsonRpcHandler, restHandler } from "a2a-sdk-03/server/express";
import { A2AService, grpcService } from "a2a-sdk-03/server/grpc";
import { Agent, card, EXTENSION, run, userOf } from "./peer.mjs";

const ENDINGS = ["COMPLETED", "CANCELED", "FAILED", "REJECTED", "INPUT_REQUIRED", "AUTH_REQUIRED"];

/** A part of 1.0 as 0.3 spells it. */
function part03({ text, data, raw, url, filename: name, mediaType: mimeType }) {
  if (text !== undefined) return { kind: "text", text };
  if (data !== undefined) return { kind: "data", data };
  return { kind: "file", file: { ...(raw ? { bytes: raw } : { uri: url }), name, mimeType } };
}

const message03 = ({ parts, taskId, ...message }) => ({
  kind: "message",
  ...message,
  ...(taskId && { taskId }),
  role: "agent",
  parts: parts.map(part03),
});

const status03 = ({ state, message, timestamp }) => ({
  state: state.replace("TASK_STATE_", "").toLowerCase().replace("_", "-"),
  timestamp,
  ...(message && { message: message03(message) }),
});

function eventOf({ task, userMessage, stored, message, statusUpdate, artifactUpdate }) {
  if (stored) return stored;
  if (message) return message03(message);
  if (task) {
    return { kind: "task", ...task, status: status03(task.status), history: [userMessage] };
  }
  if (statusUpdate) {
    const final = ENDINGS.includes(statusUpdate.status.state.replace("TASK_STATE_", ""));
    return { kind: "status-update", ...statusUpdate, status: status03(statusUpdate.status), final };
  }
  const { artifact } = artifactUpdate;
  const parts = artifact.parts.map(part03);
  return { kind: "artifact-update", ...artifactUpdate, artifact: { ...artifact, parts } };
}

class Executor {
  #agent = new Agent();

  async execute({ taskId, contextId, context, task, userMessage }, bus) {
    const call = {
      taskId,
      contextId,
      task,
      text: userMessage.parts[0]?.text ?? "",
      extensions: userMessage.extensions,
      metadata: {
        // The SDK passes only the message of a request to an agent.
        request: {},
        message: userMessage.metadata ?? {},
        tenant: "",
        activated: [...(context?.requestedExtensions ?? [])],
      },
    };
    await this.#agent.execute(call, userMessage, (event) => bus.publish(eventOf(event)));
    bus.finished();
  }

  async cancelTask(taskId) {
    this.#agent.cancel(taskId);
  }
}

const cardOf = (variant, http, grpcPort, name) => ({
  ...card(name),
  protocolVersion: "0.3.0",
  url: `${http}/rpc`,
  preferredTransport: "JSONRPC",
  additionalInterfaces: [
    { url: `${http}/rpc`, transport: "JSONRPC" },
    { url: `${http}/rest`, transport: "HTTP+JSON" },
    { url: `127.0.0.1:${grpcPort}`, transport: "GRPC" },
  ],
  capabilities: {
    streaming: true,
    pushNotifications: true,
    extensions: [{ uri: EXTENSION, description: "is echoed" }],
  },
  supportsAuthenticatedExtendedCard: true,
  ...(variant === "guarded" && {
    securitySchemes: {
      bearer: { type: "http", scheme: "Bearer" },
      key: { type: "apiKey", in: "header", name: "X-API-Key" },
    },
    security: [{ bearer: [] }, { key: [] }],
  }),
});

await run(["plain", "guarded"], (variant, http, grpcPort) => {
  const requestHandler = new DefaultRequestHandler(
    cardOf(variant, http, grpcPort, `js03 ${variant}`),
    new InMemoryTaskStore(),
    new Executor(),
    new DefaultExecutionEventBusManager(),
    new InMemoryPushNotificationStore(),
    undefined,
    cardOf(variant, http, grpcPort, `js03 ${variant}, extended`),
  );
  const options = { requestHandler, userBuilder: userOf(variant) };
  return {
    services: [[A2AService, grpcService(options)]],
    routes(app) {
      const cards = agentCardHandler({ agentCardProvider: requestHandler });
      app.use("/.well-known/agent-card.json", cards);
      app.use("/rpc", jsonRpcHandler(options));
      app.use("/rest", restHandler(options));
    },
  };
});
