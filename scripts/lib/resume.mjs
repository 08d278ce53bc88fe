// What is behind scripts/resume: real clients over a balancer, two gateways and one Redis; the gateway
// that runs a client's call is killed in the middle of it. Then each client meets a server that refuses
// to resume, and what it does is written down.

import { appendFileSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer as createHttpServer } from "node:http";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { setTimeout as sleep } from "node:timers/promises";
import { accepts, freePort, start, stop, stopAll, until } from "./process.mjs";

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    ...Object.fromEntries(["results", "gateway", "upstream"].map((name) => [name, { type: "string" }])),
    refusals: { type: "boolean", default: false },
  },
});
const clients = positionals.map((client) => {
  const [name, command] = client.split(/=(.*)/s);
  return { name, command: command.split(" ") };
});

const STEPS = 20;
/** From the kill to the end of the call: who runs it has to be found dead first. */
const PATIENCE = 40_000;
/** How long a client is watched that meets a refusal. */
const WATCHED = 12_000;
const REFUSALS = [400, 404, 405, 503, 204];

const results = options.results;
rmSync(results, { recursive: true, force: true });
mkdirSync(results, { recursive: true });

async function startRedis() {
  const port = await freePort();
  const settings = ["--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", results];
  const started = start(["redis-server", ...settings.map(String)], { log: join(results, "redis.log") });
  await until(started, 10_000, () => accepts(port));
  return port;
}

async function startUpstream(kind) {
  const started = start([process.execPath, options.upstream, kind], { log: join(results, `${kind}.log`) });
  return until(started, 10_000, () => started.output.split("\n").find((line) => line.startsWith("http")));
}

/** A gateway, which can be killed and started again on its port. JSON is YAML. */
async function gateway(index, redis, upstreams) {
  const [port, admin] = [await freePort(), await freePort()];
  const config = {
    listen: { address: `127.0.0.1:${port}` },
    admin: { address: `127.0.0.1:${admin}` },
    store: { kind: "redis", url: `redis://127.0.0.1:${redis}` },
    sealing: { keys: [{ id: "k1", secret: Buffer.alloc(32, 7).toString("base64") }] },
    tenants: {
      default: {
        auth: "none",
        policy: "allow_all",
        upstreams: Object.fromEntries(Object.entries(upstreams).map(([id, url]) => [id, { url }])),
        servers: Object.fromEntries(Object.keys(upstreams).map((id) => [id, { upstream: id }])),
      },
    },
  };
  const file = join(results, `gateway-${index}.yaml`);
  writeFileSync(file, JSON.stringify(config, null, 2), { mode: 0o600 });
  const it = { port };
  it.up = async () => {
    it.process = start([options.gateway, "serve", "--config", file], { log: join(results, `gateway-${index}.log`) });
    await until(it.process, 30_000, () => accepts(port));
  };
  it.kill = async () => {
    it.process.child.kill("SIGKILL");
    await it.process.exit;
  };
  await it.up();
  return it;
}

/** One address for all replicas, each connection to the next one that accepts. `owner` is where the
 * last tools/call went. */
async function balance(replicas) {
  const balancer = { next: 0, owner: null };
  const server = createServer((client) => forward(client, replicas.length));
  const forward = (client, tries) => {
    const replica = replicas[balancer.next++ % replicas.length];
    const upstream = connect(replica.port, "127.0.0.1");
    let open = false;
    client.on("error", () => upstream.destroy());
    upstream.on("error", () => (open || tries === 1 ? client.destroy() : forward(client, tries - 1)));
    upstream.on("connect", () => {
      open = true;
      client.on("data", (data) => {
        if (data.includes('"tools/call"')) balancer.owner = replica;
      });
      client.pipe(upstream);
      upstream.pipe(client);
      upstream.on("close", () => client.destroy());
      client.on("close", () => upstream.destroy());
    });
  };
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  balancer.url = `http://127.0.0.1:${server.address().port}`;
  return balancer;
}

const lines = (program) =>
  program.output
    .split("\n")
    .filter((line) => line.startsWith("{"))
    .map((line) => JSON.parse(line));

/** Kills the owner of a client's call in the middle; what the client saw, and how long it took. */
async function survive(client, url, balancer) {
  const program = start([...client.command, url], { log: join(results, `${client.name}.log`) });
  try {
    await until(program, 20_000, () => lines(program).length >= 3);
    const killed = Date.now();
    const owner = balancer.owner;
    await owner.kill();
    await Promise.race([program.exit, sleep(PATIENCE)]);
    const took = Date.now() - killed;
    await owner.up();
    const seen = lines(program);
    const counted = seen.filter((line) => line.progress !== undefined).map((line) => line.progress);
    return { took, counted, end: seen.at(-1) };
  } finally {
    await stop(program);
  }
}

/** A server whose stream breaks after one event and cannot be resumed; `gets` counts the attempts. */
async function refusing(status) {
  const server = createHttpServer((request, response) => {
    let body = "";
    request.on("data", (data) => (body += data));
    request.on("end", () => answer(request, response, body && JSON.parse(body)));
  });
  server.gets = 0;
  const answer = (request, response, message) => {
    if (request.method === "GET") {
      if (request.headers["last-event-id"] === undefined) return response.writeHead(405).end();
      server.gets += 1;
      return response.writeHead(status).end();
    }
    if (request.method === "DELETE" || message.id === undefined) return response.writeHead(202).end();
    const reply = (result) => {
      response.writeHead(200, { "content-type": "application/json", "mcp-session-id": "s" });
      response.end(JSON.stringify({ jsonrpc: "2.0", id: message.id, result }));
    };
    if (message.method === "initialize") {
      const { protocolVersion } = message.params;
      return reply({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "refusing", version: "1" } });
    }
    if (message.method !== "tools/call") {
      return reply({ tools: [{ name: "count", inputSchema: { type: "object" } }] });
    }
    const params = { progressToken: message.params._meta?.progressToken, progress: 1 };
    const progress = JSON.stringify({ jsonrpc: "2.0", method: "notifications/progress", params });
    response.writeHead(200, { "content-type": "text/event-stream", "mcp-session-id": "s" });
    response.write(`id: 1\nretry: 500\ndata:\n\nid: 2\ndata: ${progress}\n\n`);
    setTimeout(() => response.destroy(), 200);
  };
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  server.url = `http://127.0.0.1:${server.address().port}/mcp`;
  return server;
}

/** What a client does when its resumption is answered so. */
async function refused(client, status) {
  const server = await refusing(status);
  const program = start([...client.command, server.url], { log: join(results, `${client.name}-${status}.log`) });
  const begun = Date.now();
  await Promise.race([program.exit, sleep(WATCHED)]);
  const took = ((Date.now() - begun) / 1000).toFixed(1);
  const end = program.ended ? `${JSON.stringify(lines(program).at(-1)?.error ?? "gone")} after ${took} s` : "waits";
  await stop(program);
  server.close();
  server.closeAllConnections();
  return `${server.gets} GET, ${end}`;
}

let [passed, failed] = [0, 0];
const row = (...cells) => console.log(cells.map((cell, index) => String(cell).padEnd([9, 12, 8, 0][index])).join(""));
const verdict = (good) => {
  if (good) passed += 1;
  else failed += 1;
  return good ? "ok" : "FAILED";
};

try {
  const upstreams = { numbered: await startUpstream("numbered"), plain: await startUpstream("plain") };
  const redis = await startRedis();
  const replicas = await Promise.all([0, 1].map((index) => gateway(index, redis, upstreams)));
  const balancer = await balance(replicas);
  row("client", "upstream", "", "after the kill of the replica that runs its call");
  for (const client of clients) {
    for (const kind of Object.keys(upstreams)) {
      const { took, counted, end } = await survive(client, `${balancer.url}/mcp/default/${kind}`, balancer);
      const once = counted.every((value, index) => value === index + 1);
      const whole = counted.length === STEPS && end?.text === "counted";
      const told = end?.error === -31004 && took < 16_000;
      const good = once && (kind === "numbered" ? whole : told);
      const saw = `${counted.length} of ${STEPS}${once ? "" : " in disorder"}, then ${JSON.stringify(end)}`;
      row(client.name, kind, verdict(good), `${saw}, ${(took / 1000).toFixed(1)} s`);
      if (!good) appendFileSync(join(results, `${client.name}.log`), JSON.stringify(counted));
    }
  }
  if (options.refusals) {
    console.log(`\nwhat each does in ${WATCHED / 1000} s when its resumption is refused`);
    for (const client of clients) {
      for (const status of REFUSALS) row(client.name, status, "", await refused(client, status));
    }
  }
} finally {
  await stopAll();
}
console.log(`\n${passed} passed, ${failed} failed, 0 skipped`);
process.exit(failed === 0 && passed > 0 ? 0 : 1);
