// The comparison behind scripts/conformance: starts upstreams and a gateway,
// runs the suite on each, and holds what came through against what was there
// directly. A row passes only when every check that passes directly passes
// through, as often, and nothing new fails or warns.

import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { accepts, freePort, run, start, stopAll, until } from "./process.mjs";

const { values: options } = parseArgs({
  options: Object.fromEntries(["mode", "packages", "upstream", "gateway", "results"].map((name) => [name, { type: "string" }])),
});
const suite = join(options.packages, "@modelcontextprotocol/conformance/dist/index.js");
const everything = join(options.packages, "@modelcontextprotocol/server-everything/dist/index.js");

/** What a direct run of our own upstream must reach, or the comparison proves nothing. */
const LEAST = { "2025-11-25": { scenarios: 33, passed: 83 }, "2026-07-28": { scenarios: 40, passed: 152 } };
/** Only a server with HTTP streams can end one early. */
const NOT_OVER_STDIO = ["server-sse-polling"];
/** The longest a run of one suite may take; a good one takes seconds. */
const PATIENCE = options.mode === "full" ? 240_000 : 60_000;
/** Findings printed per row. */
const SHOWN = 40;

/** The servers of the gateway, in its own terms; `direct` names the upstream to compare with. */
const UPSTREAMS = [
  { id: "both-http", direct: "both-http", eras: "both", transport: "http", revisions: ["2025-11-25", "2026-07-28"] },
  { id: "both-stdio", direct: "both-http", eras: "both", transport: "stdio", revisions: ["2025-11-25", "2026-07-28"] },
  { id: "legacy-http", direct: "legacy-http", eras: "legacy", transport: "http", revisions: ["2025-11-25"], full: true },
  { id: "legacy-stdio", direct: "legacy-http", eras: "legacy", transport: "stdio", revisions: ["2025-11-25"], full: true },
  { id: "modern-http", direct: "modern-http", eras: "modern", transport: "http", revisions: ["2026-07-28"], full: true },
  { id: "modern-stdio", direct: "modern-http", eras: "modern", transport: "stdio", revisions: ["2026-07-28"], full: true },
  { id: "npm-http", direct: "npm-http", eras: "npm", transport: "http", revisions: ["2025-11-25"], full: true },
  { id: "npm-stdio", direct: "npm-http", eras: "npm", transport: "stdio", revisions: ["2025-11-25"], full: true },
].filter((upstream) => options.mode === "full" || !upstream.full);

const results = options.results;
rmSync(results, { recursive: true, force: true });
mkdirSync(results, { recursive: true });

/** Starts the upstreams that have a URL; gives it by their id. */
async function startUpstreams() {
  const urls = {};
  for (const { id, eras, transport } of UPSTREAMS) {
    if (transport !== "http") continue;
    const log = join(results, `${id}.log`);
    if (eras === "npm") {
      const port = await freePort();
      const started = start([process.execPath, everything, "streamableHttp"], { log, env: { PORT: String(port) } });
      await until(started, 20_000, () => accepts(port));
      urls[id] = `http://127.0.0.1:${port}/mcp`;
    } else {
      const started = start([options.upstream, "--era", eras], { log });
      urls[id] = await until(started, 20_000, () => started.output.split("\n").find((line) => line.startsWith("http")));
    }
  }
  return urls;
}

/** How the gateway reaches an upstream. JSON is YAML. */
function upstreamSection({ id, eras, transport }, urls) {
  if (transport === "http") return { url: urls[id] };
  const command = eras === "npm" ? [process.execPath, everything, "stdio"] : [options.upstream, "--stdio", "--era", eras];
  return { command, max_sessions: 64 };
}

/** Starts the gateway with one transparent server per upstream; gives its base URL. */
async function startGateway(urls) {
  const [port, adminPort] = [await freePort(), await freePort()];
  const config = {
    listen: { address: `127.0.0.1:${port}` },
    admin: { address: `127.0.0.1:${adminPort}` },
    store: { kind: "embedded", path: "none" },
    tenants: {
      default: {
        auth: "none",
        policy: "allow_all",
        upstreams: Object.fromEntries(UPSTREAMS.map((upstream) => [upstream.id, upstreamSection(upstream, urls)])),
        servers: Object.fromEntries(UPSTREAMS.map(({ id }) => [id, { upstream: id, poll_close: true }])),
      },
    },
  };
  const file = join(results, "gateway.yaml");
  writeFileSync(file, JSON.stringify(config, null, 2), { mode: 0o600 });
  const started = start([options.gateway, "serve", "--config", file], { log: join(results, "gateway.log") });
  await until(started, 30_000, () => accepts(port));
  return `http://127.0.0.1:${port}/mcp/default`;
}

/** Runs the whole suite of one revision against a URL; gives the checks by scenario. */
async function runSuite(name, url, revision) {
  const folder = join(results, name);
  const command = [process.execPath, suite, "server", "--url", url, "--suite", "all", "--spec-version", revision];
  command.push("--timeout", "15000", "--output-dir", folder);
  await run(command, { log: join(results, `${name}.log`) }, PATIENCE);
  const scenarios = new Map();
  let entries = [];
  try {
    entries = readdirSync(folder);
  } catch {
    // No scenario came to its end.
  }
  for (const entry of entries) {
    const scenario = entry.replace(/^server-/, "").replace(/-\d{4}-\d\d-\d\dT.*$/, "");
    scenarios.set(scenario, JSON.parse(readFileSync(join(folder, entry, "checks.json"), "utf8")));
  }
  return scenarios;
}

/** How often each check of a scenario ended in `status`. */
function tally(checks, status) {
  const counts = new Map();
  for (const check of checks.filter((check) => check.status === status)) {
    const key = `${check.id} (${check.name})`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return counts;
}

function total(scenarios, status) {
  return [...scenarios.values()].flat().filter((check) => check.status === status).length;
}

/** Everything that is worse, or suspiciously different, through the gateway. */
function compare(direct, through, exact) {
  const findings = { failures: 0, warnings: 0, lines: [] };
  for (const [scenario, before] of direct) {
    const after = through.get(scenario);
    if (!after) {
      findings.lines.push(`${scenario}: did not run`);
      continue;
    }
    const [passedBefore, passedAfter] = [tally(before, "SUCCESS"), tally(after, "SUCCESS")];
    for (const check of new Set([...passedBefore.keys(), ...passedAfter.keys()])) {
      const [was, is] = [passedBefore.get(check) ?? 0, passedAfter.get(check) ?? 0];
      if (is < was || (exact && is > was)) findings.lines.push(`${scenario}: ${check} passed ${was} times directly, ${is} through`);
    }
    for (const [status, count] of [["FAILURE", "failures"], ["WARNING", "warnings"]]) {
      const known = tally(before, status);
      for (const [check, times] of tally(after, status)) {
        const added = times - (known.get(check) ?? 0);
        if (added <= 0) continue;
        findings[count] += added;
        const why = after.find((entry) => entry.status === status && check.startsWith(entry.id))?.errorMessage ?? "";
        findings.lines.push(`${scenario}: new ${status} of ${check}: ${why.slice(0, 300)}`);
      }
    }
  }
  for (const scenario of through.keys()) {
    if (!direct.has(scenario)) findings.lines.push(`${scenario}: ran only through the gateway`);
  }
  return findings;
}

/** What is wrong with a direct run of our own upstream. */
function shortfall(scenarios, revision) {
  const [count, passed, least] = [scenarios.size, total(scenarios, "SUCCESS"), LEAST[revision]];
  const lines = [];
  if (count < least.scenarios) lines.push(`only ${count} of ${least.scenarios} scenarios ran directly`);
  if (passed < least.passed) lines.push(`only ${passed} of at least ${least.passed} checks passed directly`);
  for (const status of ["FAILURE", "WARNING"]) {
    if (total(scenarios, status)) lines.push(`${total(scenarios, status)} direct checks ended in ${status}`);
  }
  return lines;
}

function without(scenarios, names) {
  return new Map([...scenarios].filter(([name]) => !names.includes(name)));
}

const columns = [12, 14, 9, 10, 8, 8, 13, 13, 8];
const print = (cells) => console.log(cells.map((cell, at) => String(cell).padEnd(columns[at])).join("").trimEnd());

/** One row of the table: one suite on one upstream. */
async function row({ id, direct: from, eras, transport }, revision, direct, base) {
  let before = direct.get(`${from} ${revision}`);
  const lines = eras === "npm" ? [] : shortfall(before, revision);
  if (eras === "npm" && total(before, "SUCCESS") === 0) lines.push("nothing passed directly");
  if (transport === "stdio") before = without(before, NOT_OVER_STDIO);
  let cells = ["-", "-", "-"];
  if (options.mode !== "direct") {
    let through = await runSuite(`${id}-${revision}-through`, `${base}/${id}`, revision);
    if (transport === "stdio") through = without(through, NOT_OVER_STDIO);
    const found = compare(before, through, eras !== "npm");
    lines.push(...found.lines);
    cells = [total(through, "SUCCESS"), found.failures, found.warnings];
  }
  const passed = lines.length === 0;
  print([revision, id, transport, before.size, total(before, "SUCCESS"), ...cells, passed ? "ok" : "FAILED"]);
  for (const line of lines.slice(0, SHOWN)) console.log(`    ${line}`);
  if (lines.length > SHOWN) console.log(`    and ${lines.length - SHOWN} more; all checks are in ${results}`);
  return passed;
}

async function main() {
  const urls = await startUpstreams();
  const direct = new Map();
  for (const { id, transport, revisions } of UPSTREAMS) {
    if (transport !== "http") continue;
    for (const revision of revisions) {
      direct.set(`${id} ${revision}`, await runSuite(`${id}-${revision}-direct`, urls[id], revision));
    }
  }
  const base = options.mode === "direct" ? null : await startGateway(urls);
  print(["suite", "server", "upstream", "scenarios", "direct", "through", "new failures", "new warnings", ""]);
  const tally = { passed: 0, failed: 0, skipped: 0 };
  for (const upstream of UPSTREAMS) {
    for (const revision of upstream.revisions) {
      if (options.mode === "direct" && upstream.transport === "stdio") tally.skipped += 1;
      else if (await row(upstream, revision, direct, base)) tally.passed += 1;
      else tally.failed += 1;
    }
  }
  console.log(`${tally.passed} passed, ${tally.failed} failed, ${tally.skipped} skipped`);
  return tally.failed === 0 && tally.passed > 0 ? 0 : 1;
}

let code = 1;
try {
  code = await main();
} catch (error) {
  const rows = UPSTREAMS.flatMap((upstream) => upstream.revisions).length;
  console.log(`${error.message}\n0 passed, ${rows} failed, 0 skipped`);
} finally {
  await stopAll();
}
process.exit(code);
