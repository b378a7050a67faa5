// An HTTP function that asks for what it has to know.
//
// node function.mjs
// peregrine serve --agent http://127.0.0.1:8000/

import { createServer } from "node:http";

const text = (message) => message.parts.map((part) => part.text ?? "").join("");

createServer(async (request, response) => {
  const { state, message } = JSON.parse((await request.toArray()).join(""));
  const event =
    state === "input-required"
      ? { artifact: { artifactId: "cup", text: `one ${text(message)} coffee` } }
      : { status: "input-required", message: "What size?" };
  response.setHeader("Content-Type", "application/json");
  response.end(JSON.stringify(event));
}).listen(process.env.PORT ?? 8000, "127.0.0.1");
