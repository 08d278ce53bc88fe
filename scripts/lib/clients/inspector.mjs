// The Inspector's command line, one process per request: lists the tools and
// calls one.
import { spawnSync } from "node:child_process";
import { createRequire } from "node:module";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

const [url, era, tool, args] = process.argv.slice(2);
const require = createRequire(import.meta.url);
const launcher = join(dirname(require.resolve("@modelcontextprotocol/inspector/package.json")), "clients/launcher/build/index.js");
// The Inspector keeps files at home; they are none of the user's business here.
const home = mkdtempSync(join(tmpdir(), "inspector-"));

function inspect(...more) {
  const shared = ["--cli", "--transport", "http", "--server-url", url, "--protocol-era", era, "--format", "json", "--quiet"];
  const env = { ...process.env, HOME: home, MCP_STORAGE_DIR: home };
  const { status, stdout, stderr } = spawnSync(process.execPath, [launcher, ...shared, ...more], { env, encoding: "utf8" });
  if (status !== 0) throw new Error(`status ${status}: ${stderr || stdout}`);
  const parsed = JSON.parse(stdout);
  return parsed.result ?? parsed;
}

try {
  const { tools } = inspect("--method", "tools/list");
  const result = inspect("--method", "tools/call", "--tool-name", tool, "--tool-args-json", args);
  const text = result.content.map((block) => block.text ?? "").join("\n");
  console.log(JSON.stringify({ revision: era, tools: tools.map(({ name }) => name), text }));
} finally {
  rmSync(home, { recursive: true, force: true });
}
