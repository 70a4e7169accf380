// Opens report.html in Chromium: at the width of a phone and of a desktop, light and dark, with axe-core, with the keyboard, and printed.
//   node look.mjs FOLDER_OF_MODULES CHROMIUM FOLDER_OF_RUNS
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { readFileSync, mkdirSync } from "node:fs";
import path from "node:path";

const [modules, chromium, runs] = process.argv.slice(2);
const require = createRequire(path.join(path.resolve(modules), "x.js"));
const { chromium: browserType } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const pictures = path.join(runs, "pictures");
mkdirSync(pictures, { recursive: true });

const problems = [];
const must = (is, text) => {
  console.log(`${is ? "ok " : "NOT"} ${text}`);
  if (!is) problems.push(text);
};

const browser = await browserType.launch({ executablePath: chromium, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
const pageOf = (run) => pathToFileURL(path.resolve(runs, run, "report.html")).href;

const open = async (run, { width = 1280, height = 900, colorScheme = "light", reducedMotion = "no-preference", hash = "" } = {}) => {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme, reducedMotion });
  const page = await context.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => { if (message.type() === "error") errors.push(message.text()); });
  page.on("request", (request) => { if (!request.url().startsWith("file:")) errors.push(`it loads ${request.url()}`); });
  const client = await context.newCDPSession(page);
  await client.send("Performance.enable", { timeDomain: "threadTicks" });
  await page.goto(pageOf(run) + hash);
  await page.waitForSelector("#grid .cell", { state: "attached" });
  /** Processor time of the page's thread so far, in milliseconds: what a machine with nothing else to do needs at most. */
  const processorTime = async () => {
    const { metrics } = await client.send("Performance.getMetrics");
    return Math.round(metrics.find(({ name }) => name === "TaskDuration").value * 1000);
  };
  return { page, errors, context, processorTime };
};

// The page's policy allows no script but its own: axe-core comes through the debugger, past the policy.
const violations = async (page) => {
  await page.evaluate(axe);
  const found = await page.evaluate(async () => {
    const { violations } = await axe.run(document, { resultTypes: ["violations"] });
    return violations.map((one) => `${one.id} (${one.impact}): ${one.nodes.slice(0, 3).map((node) => node.target.join(" ")).join(", ")}`);
  });
  return found;
};

const failing = "night30";
for (const [name, width, height] of [["phone", 390, 844], ["desktop", 1280, 900]]) {
  for (const colorScheme of ["light", "dark"]) {
    const { page, errors, context } = await open(failing, { width, height, colorScheme });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    must(wide <= 0, `${name}, ${colorScheme}: the page does not scroll sideways (${wide} px too wide)`);
    await page.screenshot({ path: path.join(pictures, `${name}-${colorScheme}.png`) });
    let found = await violations(page);
    must(found.length === 0, `${name}, ${colorScheme}: axe-core finds nothing ${found.join("; ")}`);
    const trend = await page.locator("#trend").boundingBox();
    const kinds = await page.locator("#kinds").boundingBox();
    must(kinds && kinds.y < height && trend, `${name}, ${colorScheme}: problems begin on the first screen`);
    const courses = page.locator(name === "phone" ? "#trend-overview > li" : "#trend-list > li");
    const lowest = await courses.last().boundingBox();
    must((await courses.count()) === 4 && lowest.y + lowest.height <= height, `${name}, ${colorScheme}: what broke, is flaky and was fixed is on the first screen`);
    await page.keyboard.press("n");
    await page.waitForSelector("#panel:not([hidden]) .card");
    found = await violations(page);
    must(found.length === 0, `${name}, ${colorScheme}: axe-core finds nothing with details open ${found.join("; ")}`);
    await page.screenshot({ path: path.join(pictures, `${name}-${colorScheme}-details.png`) });
    must(errors.length === 0, `${name}, ${colorScheme}: no error, nothing loaded ${errors.join("; ")}`);
    await context.close();
  }
}

{
  const { page, context } = await open(failing);
  const text = await page.locator("#trend").innerText();
  for (const part of ["newly broken", "driver 580.1 → 580.2", "torch 2.10.0 → 2.11.0", "flaky", "in 3 of 30 runs", "kernel Linux 6.1.0 → Linux 6.6.0", "Since night29: 4 newly broken"]) {
    must(text.includes(part), `the month says: ${part}`);
  }
  // The panel follows the address, a moment after the key: its card is waited for.
  const nextCard = async (key, before) => {
    await page.keyboard.press(key);
    const change = (old) => {
      const card = document.querySelector("#panel .card")?.dataset.check;
      return card !== undefined && card !== old && card;
    };
    return (await page.waitForFunction(change, before)).jsonValue();
  };
  const first = await nextCard("n", null);
  const second = await nextCard("n", first);
  const back = await nextCard("p", second);
  must(first !== second && back === first, "n and p go from failure to failure");
  const commands = await page.locator("#panel .card").first().locator(".repeat code").allInnerTexts();
  must(commands.length === 2 && commands[1].startsWith("allranks repro "), "a failure has the command of its repro");
  must((await page.locator("#panel .timeline .waits").count()) > 0, "the timeline tells waiting from running");
  await page.keyboard.press("Escape");
  must(await page.locator("#panel").isHidden(), "Escape closes the details");
  await page.locator("#filter").fill("n");
  must(await page.locator("#panel").isHidden(), "a letter in a field is a letter");
  await page.locator("#filter").fill("");
  must(!(await page.locator("#absent li").first().isVisible()), "absent platforms are folded");
  const heads = () => page.locator("#grid thead tr:last-child th").count();
  const before = await heads();
  await page.locator("#columns summary").click();
  await page.locator("#column-list input").first().uncheck();
  must((await heads()) === before - 1, "a column can be hidden");
  await page.locator("#columns-all").click();
  await page.locator("#column-filter").fill("ws4");
  must((await heads()) === 1, "columns can be filtered");
  await page.locator("#column-filter").fill("");
  await page.locator("#grid .by").first().click();
  must((await page.locator('#grid th[aria-sort="descending"]').count()) === 1, "rows can be ordered by a column");
  // With the keyboard alone: into the matrix, to a cell, into its details and back to it.
  await page.locator("#grid .cell[tabindex='0']").focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await page.waitForSelector("#panel:not([hidden])");
  await page.keyboard.press("Escape");
  must(await page.evaluate(() => document.activeElement.classList.contains("cell")), "focus comes back to the cell");
  await page.emulateMedia({ media: "print" });
  must(!(await page.locator(".tools").first().isVisible()) && (await page.locator("#grid").isVisible()), "printed, there are results and no tools");
  await context.close();
}

{
  const { page, context } = await open(failing, { reducedMotion: "reduce" });
  const moves = await page.evaluate(() => document.getAnimations().length);
  must(moves === 0, "nothing moves where less motion is asked for");
  await context.close();
}

{
  const { page, errors, context, processorTime } = await open("large");
  await page.waitForTimeout(200);
  const used = await processorTime();
  const cells = await page.locator("#grid .cell").count();
  // A time is measured and told; what keeps it short is asserted: few cells are made before they come into view.
  console.log(`    large: 60 columns, 65,000 checks: open after ${used} ms of processor time; ${cells} cells`);
  must(cells > 0 && cells < 6000, `large: no more cells than a few screens hold (${cells})`);
  const rows = () => page.locator("#grid tbody tr").count();
  let had = await rows();
  const begun = had;
  for (let turn = 0; turn < 50; turn += 1) {
    await page.evaluate(() => { const grid = document.getElementById("grid"); grid.scrollTop = grid.scrollHeight; });
    await page.waitForTimeout(30);
    const now = await rows();
    if (now === had && turn > 3) break;
    had = now;
  }
  must(had > begun, `large: scrolling brings more rows (${begun}, then ${had})`);
  must(errors.length === 0, `large: no error ${errors.join("; ")}`);
  await page.screenshot({ path: path.join(pictures, "large.png") });
  await context.close();
}

await browser.close();
if (problems.length) {
  console.error(`${problems.length} problems`);
  process.exit(1);
}
