// The agent of the peers on the official JavaScript SDK of 1.0: js1.mjs
//
// Three variants on separate ports: `plain`, `compat` (also serves 0.3), `guarded` (requires a
// key and has a tenant). Prints their URLs as one line of JSON when all of them are ready.

import {
  AgentCard,
  Message,
  Task,
  TaskArtifactUpdateEvent,
  TaskStatusUpdateEvent,
} from "a2a-sdk-1";
import { LegacyA2AService, legacyGrpcService } from "a2a-sdk-1/compat/v0_3/server/grpc";
import {
  AgentEvent,
  DefaultExecutionEventBusManager,
  DefaultRequestHandler,
  InMemoryPushNotificationStore,
  InMemoryTaskStore,
} from "a2a-sdk-1/server";
import { agentCardHandler, jsonRpcHandler, restHandler } from "a2a-sdk-1/server/express";
import { A2AService, grpcService } from "a2a-sdk-1/server/grpc";
import { Agent, card, EXTENSION, run, TENANT, userOf } from "./peer.mjs";

function eventOf({ task, userMessage, stored, message, statusUpdate, artifactUpdate }) {
  if (stored) return AgentEvent.task(stored);
  if (task) return AgentEvent.task({ ...Task.fromJSON(task), history: [userMessage] });
  if (message) return AgentEvent.message(Message.fromJSON(message));
  if (statusUpdate) return AgentEvent.statusUpdate(TaskStatusUpdateEvent.fromJSON(statusUpdate));
  return AgentEvent.artifactUpdate(TaskArtifactUpdateEvent.fromJSON(artifactUpdate));
}

class Executor {
  #agent = new Agent();

  async execute({ request, taskId, contextId, context, task, userMessage }, bus) {
    const call = {
      taskId,
      contextId,
      task,
      text: userMessage.parts[0]?.content?.value ?? "",
      extensions: userMessage.extensions,
      metadata: {
        request: request.metadata ?? {},
        message: userMessage.metadata ?? {},
        tenant: context.tenant ?? "",
        activated: [...(context.requestedExtensions ?? [])],
      },
    };
    await this.#agent.execute(call, userMessage, (event) => bus.publish(eventOf(event)));
    bus.finished();
  }

  async cancelTask(taskId) {
    this.#agent.cancel(taskId);
  }
}

function cardOf(variant, http, grpcPort, name) {
  const bindings = [
    ["JSONRPC", `${http}/rpc`],
    ["HTTP+JSON", `${http}/rest`],
    ["GRPC", `127.0.0.1:${grpcPort}`],
  ];
  const versions = variant === "compat" ? ["1.0", "0.3"] : ["1.0"];
  const tenant = variant === "guarded" ? TENANT : "";
  const guards = variant === "guarded" && {
    securitySchemes: {
      bearer: { httpAuthSecurityScheme: { scheme: "Bearer" } },
      key: { apiKeySecurityScheme: { location: "header", name: "X-API-Key" } },
    },
    securityRequirements: [
      { schemes: { bearer: { list: [] } } },
      { schemes: { key: { list: [] } } },
    ],
  };
  return AgentCard.fromJSON({
    ...card(name),
    supportedInterfaces: versions.flatMap((protocolVersion) =>
      bindings.map(([protocolBinding, url]) => ({ url, protocolBinding, protocolVersion, tenant })),
    ),
    capabilities: {
      streaming: true,
      pushNotifications: true,
      extendedAgentCard: true,
      extensions: [{ uri: EXTENSION, description: "is echoed" }],
    },
    ...guards,
  });
}

await run(["plain", "compat", "guarded"], (variant, http, grpcPort) => {
  const requestHandler = new DefaultRequestHandler(
    cardOf(variant, http, grpcPort, `js1 ${variant}`),
    new InMemoryTaskStore(),
    new Executor(),
    new DefaultExecutionEventBusManager(),
    new InMemoryPushNotificationStore(),
    undefined,
    cardOf(variant, http, grpcPort, `js1 ${variant}, extended`),
  );
  const userBuilder = userOf(variant);
  const legacyCompat = { enabled: variant === "compat" };
  const options = { requestHandler, userBuilder, legacyCompat };
  const services = [[A2AService, grpcService({ requestHandler, userBuilder })]];
  if (legacyCompat.enabled) {
    services.push([LegacyA2AService, legacyGrpcService({ requestHandler, userBuilder })]);
  }
  return {
    services,
    routes(app) {
      const cards = agentCardHandler({ agentCardProvider: requestHandler, legacyCompat });
      app.use("/.well-known/agent-card.json", cards);
      app.use("/rpc", jsonRpcHandler(options));
      app.use("/rest", restHandler(options));
    },
  };
});
