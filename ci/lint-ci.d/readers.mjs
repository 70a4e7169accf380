// Reads the JUnit files of runs with two readers of npm, and compares what they find with the run's results.jsonl.
//   node readers.mjs FOLDER_OF_MODULES RUN...
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import path from "node:path";

const [modules, ...runs] = process.argv.slice(2);
const require = createRequire(path.join(path.resolve(modules), "x.js"));
const results = require("test-results-parser");
const junit2json = await import(pathToFileURL(require.resolve("junit2json")).href);

const FAILING = ["regression", "unexpected-pass"];
const SKIPPED = ["known-failure", "waived", "not-run"];

/** For each check `failed`, `skipped` or `passed`. */
const expected = (run) => {
  const lines = readFileSync(path.join(run, "results.jsonl"), "utf8").trim().split("\n").map((line) => JSON.parse(line));
  const ends = new Map();
  for (const { type, id, verdict, outcome } of lines) {
    if (type !== "check") continue;
    const skipped = SKIPPED.includes(verdict) || outcome === "unsupported";
    ends.set(id, FAILING.includes(verdict) ? "failed" : skipped ? "skipped" : "passed");
  }
  return ends;
};

const byJunit2json = async (file) => {
  const { testsuite } = await junit2json.parse(readFileSync(file, "utf8"));
  const cases = testsuite.flatMap((suite) => suite.testcase);
  return new Map(cases.map((one) => [one.name, one.failure || one.error ? "failed" : one.skipped ? "skipped" : "passed"]));
};

const problems = [];
for (const run of runs) {
  const wanted = expected(run);
  const count = (end) => [...wanted.values()].filter((one) => one === end).length;
  for (const name of ["junit.xml", "junit-extended.xml"]) {
    const file = path.join(run, name);
    const found = await byJunit2json(file);
    const differing = [...wanted].filter(([id, end]) => found.get(id) !== end);
    if (differing.length || found.size !== wanted.size) {
      problems.push(`${file}, junit2json: ${differing.length} of ${wanted.size} differ, such as ${differing[0]}`);
    }
    // It takes the skipped from the root of the file, which has none in junit.xml, and does not count them as tests.
    const told = results.parse({ type: "junit", files: [file] });
    const skipped = name === "junit.xml" ? 0 : count("skipped");
    const numbers = [told.total, told.failed + told.errors, told.skipped];
    const right = [wanted.size - skipped, count("failed"), skipped];
    if (String(numbers) !== String(right)) {
      problems.push(`${file}, test-results-parser: tests, failed and skipped are ${numbers}, not ${right}`);
    }
  }
}
if (problems.length) {
  console.error(problems.join("\n"));
  process.exit(1);
}
