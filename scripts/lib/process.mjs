// Child processes of a test run: started with their output in a file, watched,
// and stopped one by one. Nothing is ever stopped that was not started here.

import { spawn } from "node:child_process";
import { createWriteStream, readFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

const running = new Set();

/** Starts a program; its output goes to `log`. */
export function start(command, { log, env = {} }) {
  const [program, ...args] = command;
  const child = spawn(program, args, { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
  const file = createWriteStream(log);
  const started = { child, log, output: "", ended: false };
  child.stdout.on("data", (data) => (started.output += data));
  child.stdout.pipe(file, { end: false });
  child.stderr.pipe(file, { end: false });
  started.exit = new Promise((resolve) => {
    child.on("error", (error) => resolve(`cannot start ${program}: ${error.message}`));
    child.on("exit", (code, signal) => resolve(`${program} ended with ${signal ?? code}`));
  }).then((reason) => {
    started.ended = reason;
    running.delete(started);
    return reason;
  });
  running.add(started);
  return started;
}

/** Stops a program: asks, waits, then forces. */
export async function stop(started) {
  if (started.ended) return;
  started.child.kill("SIGTERM");
  const forced = setTimeout(() => started.child.kill("SIGKILL"), 5000);
  await started.exit;
  clearTimeout(forced);
}

/** Stops whatever is still running. */
export async function stopAll() {
  await Promise.all([...running].map(stop));
}

/** Runs a program to its end; null when it had to be stopped after `limit` ms. */
export async function run(command, options, limit) {
  const started = start(command, options);
  const timer = setTimeout(() => stop(started), limit);
  await started.exit;
  clearTimeout(timer);
  return started.child.exitCode;
}

/** Waits until `check` returns something, at most `limit` ms while the program runs. */
export async function until(started, limit, check) {
  for (const end = Date.now() + limit; Date.now() < end; await sleep(50)) {
    if (started.ended) throw new Error(`${started.ended}; its last words:\n${lastWords(started.log)}`);
    const found = await check();
    if (found) return found;
  }
  throw new Error(`no sign of life in ${limit / 1000} s; its last words:\n${lastWords(started.log)}`);
}

function lastWords(log) {
  return readFileSync(log, "utf8").trimEnd().split("\n").slice(-15).join("\n");
}

/** A loopback port nobody listens on right now, for programs that cannot choose one themselves. */
export function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer().on("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

/** Whether something accepts connections on a loopback port. */
export function accepts(port) {
  return new Promise((resolve) => {
    const socket = connect({ port, host: "127.0.0.1" });
    socket.on("connect", () => resolve(true)).on("error", () => resolve(false));
    socket.on("connect", () => socket.destroy());
  });
}

// Whatever ends this process early, an unread pipe included, must not leave children behind.
process.on("exit", () => running.forEach(({ child }) => child.kill("SIGKILL")));
for (const stream of [process.stdout, process.stderr]) stream.on("error", () => process.exit(1));

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, async () => {
    await stopAll();
    process.exit(130);
  });
}
