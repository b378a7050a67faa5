// Asks for what it has to know, and goes on with the answer.
//
// peregrine serve --agent 'barista=exec+jsonl:node ask.mjs'

import { createInterface } from "node:readline";

const say = (turn, event) => console.log(JSON.stringify({ turn, ...event }));
const text = (message) => message.parts.map((part) => part.text ?? "").join("");

for await (const line of createInterface({ input: process.stdin })) {
  const { type, turn, state, message } = JSON.parse(line);
  if (type !== "turn") continue;
  if (state === "input-required") {
    say(turn, { artifact: { artifactId: "cup", text: `one ${text(message)} coffee` } });
    say(turn, { status: "completed" });
  } else {
    say(turn, { status: "input-required", message: "What size?" });
  }
}
