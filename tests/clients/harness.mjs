// Runs the cases of one client script and prints `N passed, N failed`.

import assert from "node:assert/strict";

const CASE_MS_MAX = 20_000;

/** The binding that a client must choose from the card. */
export const BINDING = process.env.A2A_BINDING ?? "JSONRPC";

/** Awaits every event of a stream. */
export async function drain(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

/**
 * `steps` has state names and the word `artifact`, in the order of arrival. Asserts: nothing before
 * the task works, `chunks` artifact updates, one terminal state at the end.
 */
export function checkStream(steps, chunks) {
  const seen = steps.join(" ");
  assert.equal(steps.filter((s) => s === "artifact").length, chunks, `artifacts in ${seen}`);
  const states = steps.filter((s) => s !== "artifact");
  assert.equal(steps.at(-1), "completed", `last event of ${seen}`);
  const order = states.filter((s, i) => states[i - 1] !== s).join(" ");
  assert.match(order, /^(submitted )?working completed$/, `order of states in ${seen}`);
  assert.ok(steps.indexOf("working") < steps.indexOf("artifact"), `work first in ${seen}`);
}

/** Asserts that the promise fails, with an error of that name if given. */
export async function raises(name, promise, what) {
  try {
    await promise;
  } catch (error) {
    if (name !== undefined) {
      const names = [error.name, error.constructor.name];
      assert.ok(names.some((n) => n.endsWith(name)), `${what}: ${names} is not ${name}: ${error}`);
    }
    return error;
  }
  assert.fail(`${what}: no error`);
}

/** Runs `cases`, an object of async functions that take the base URL. */
export async function main(label, baseUrl, cases) {
  let passed = 0;
  let failed = 0;
  for (const [name, run] of Object.entries(cases)) {
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error("case took too long")), CASE_MS_MAX);
    });
    try {
      await Promise.race([run(baseUrl), late]);
      passed += 1;
      console.log(`ok   ${label} ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAIL ${label} ${name}\n${error.stack}`);
    } finally {
      clearTimeout(timer);
    }
  }
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed > 0 || passed === 0 ? 1 : 0);
}
