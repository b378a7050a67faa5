// Pages of `peregrine bench` in Debian's Chromium: report.mjs BASE_URL, with their paths in
// REPORTS, separated by spaces.

import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";
import { main } from "./harness.mjs";

const pages = process.env.REPORTS.split(" ");
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  chromiumSandbox: false,
  args: ["--disable-gpu", "--no-first-run", "--disable-background-networking"],
});

/** Opens a page, and returns it with its errors and the URLs that it has requested. */
async function open(file, width, colorScheme) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme });
  const page = await context.newPage();
  const opened = { page, complaints: [], asked: [] };
  page.on("console", (message) => opened.complaints.push(message.text()));
  page.on("pageerror", (error) => opened.complaints.push(String(error)));
  page.on("request", (request) => opened.asked.push(request.url()));
  await page.goto(pathToFileURL(file).href);
  return opened;
}

/** In the page: the errors of its plots and its layout. */
function faults() {
  const found = [];
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) found.push(`it is ${root.scrollWidth} px wide`);
  const plots = [...document.querySelectorAll("figure")];
  if (plots.length === 0) found.push("no plots");
  for (const plot of plots) {
    const svg = plot.querySelector("svg");
    const sentence = plot.querySelector("figcaption")?.textContent.trim() ?? "";
    if (!sentence.endsWith(".")) found.push(`no sentence under a plot: ${sentence}`);
    if (!svg) continue;
    const outer = svg.getBoundingClientRect();
    for (const text of svg.querySelectorAll("text")) {
      const inner = text.getBoundingClientRect();
      const isInside = inner.left >= outer.left - 1 && inner.right <= outer.right + 1
        && inner.top >= outer.top - 1 && inner.bottom <= outer.bottom + 1;
      if (!isInside) found.push(`text outside of its plot: ${text.textContent}`);
    }
    if (/NaN|Infinity/.test(svg.outerHTML)) found.push("a plot with a number that is none");
  }
  const colors = getComputedStyle(document.body);
  return { found, background: colors.backgroundColor, color: colors.color };
}

const cases = {
  async pagesAreWholeInEachWidthAndColorScheme() {
    for (const file of pages) {
      const backgrounds = new Set();
      for (const colorScheme of ["light", "dark"]) {
        for (const width of [400, 860]) {
          const { page, complaints, asked } = await open(file, width, colorScheme);
          const { found, background, color } = await page.evaluate(faults);
          const where = `${file}, ${width} px, ${colorScheme}`;
          assert.deepEqual(found, [], where);
          assert.deepEqual(complaints, [], where);
          assert.deepEqual(asked, [pathToFileURL(file).href], where);
          assert.notEqual(background, color, where);
          backgrounds.add(background);
          await page.context().close();
        }
      }
      assert.equal(backgrounds.size, 2, `${file} looks the same in light and dark`);
    }
  },
};

await main("report", process.argv[2], cases);
