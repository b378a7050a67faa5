// An agent on the official JavaScript SDK that keeps the contract of `peregrine bench`:
//
//     npm install @a2a-js/sdk@1 @bufbuild/protobuf express
//     node agent.mjs [PORT]
//
// It echoes texts. `stream:N` and `stream:N:BYTES` are answered with N events, and `hold:MS:N` and
// `hold:MS:N:BYTES` with the same after MS milliseconds.

import { setTimeout as pause } from "node:timers/promises";
import { AgentCard, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent } from "@a2a-js/sdk";
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } from "@a2a-js/sdk/server";
import { agentCardHandler, jsonRpcHandler, UserBuilder } from "@a2a-js/sdk/server/express";
import express from "express";

const TRIGGER = /^(?:stream|hold:(\d+)):(\d+)(?::(\d+))?$/;

class Agent {
  #canceled = new Map();

  async execute({ taskId, contextId, userMessage }, bus) {
    const ids = { taskId, contextId };
    const status = (name) => ({
      state: `TASK_STATE_${name}`,
      timestamp: new Date().toISOString(),
    });
    const change = (name) =>
      bus.publish(
        AgentEvent.statusUpdate(TaskStatusUpdateEvent.fromJSON({ ...ids, status: status(name) })),
      );
    const artifact = (artifactId, text, place) => {
      const update = { ...ids, artifact: { artifactId, parts: [{ text }] }, ...place };
      bus.publish(AgentEvent.artifactUpdate(TaskArtifactUpdateEvent.fromJSON(update)));
    };
    const task = { id: taskId, contextId, status: status("SUBMITTED") };
    bus.publish(AgentEvent.task({ ...Task.fromJSON(task), history: [userMessage] }));
    const text = userMessage.parts[0]?.content?.value ?? "";
    const trigger = TRIGGER.exec(text);
    if (!trigger) {
      artifact("echo", text);
      change("COMPLETED");
      return bus.finished();
    }
    const [holdMs, events, size] = trigger.slice(1).map((digits) => Number(digits ?? 0));
    const canceled = new AbortController();
    this.#canceled.set(taskId, canceled);
    try {
      if (holdMs > 0) await pause(holdMs, undefined, { signal: canceled.signal });
      if (events > 1) change("WORKING");
      for (let number = 1; number < events - 1; number++) {
        const chunk = `chunk ${number}`;
        const filled = chunk.length < size ? `${chunk} `.padEnd(size, ".") : chunk;
        artifact("chunks", filled, { append: number > 1, lastChunk: number === events - 2 });
      }
      change("COMPLETED");
    } catch {
      change("CANCELED");
    } finally {
      this.#canceled.delete(taskId);
      bus.finished();
    }
  }

  async cancelTask(taskId) {
    this.#canceled.get(taskId)?.abort();
  }
}

const port = Number(process.argv[2] ?? 4000);
const card = AgentCard.fromJSON({
  name: "bench",
  description: "Keeps the contract of peregrine bench",
  version: "1.0.0",
  supportedInterfaces: [
    { url: `http://127.0.0.1:${port}/`, protocolBinding: "JSONRPC", protocolVersion: "1.0" },
  ],
  capabilities: { streaming: true },
  defaultInputModes: ["text/plain"],
  defaultOutputModes: ["text/plain"],
  skills: [{ id: "echo", name: "Echo", description: "Echoes", tags: ["echo"] }],
});
const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Agent());
const app = express();
app.use("/.well-known/agent-card.json", agentCardHandler({ agentCardProvider: requestHandler }));
app.use("/", jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
app.listen(port, "127.0.0.1");
