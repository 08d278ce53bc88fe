// An upstream with one slow tool, made with the TypeScript SDK, first generation: `count` sends a
// progress notification every 200 ms, then its result. Its events are numbered and can be asked for
// again when the first argument is `numbered`. Prints its URL.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { InMemoryEventStore } from "@modelcontextprotocol/sdk/examples/shared/inMemoryEventStore.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { setTimeout as sleep } from "node:timers/promises";

const STEPS = 20;
const numbered = process.argv[2] === "numbered";
const sessions = new Map();

async function count(extra) {
  for (let progress = 1; progress <= STEPS; progress += 1) {
    const params = { progressToken: extra._meta?.progressToken, progress, total: STEPS };
    await extra.sendNotification({ method: "notifications/progress", params });
    await sleep(200);
  }
  return { content: [{ type: "text", text: "counted" }] };
}

async function open() {
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    eventStore: numbered ? new InMemoryEventStore() : undefined,
    onsessioninitialized: (id) => sessions.set(id, transport),
  });
  const server = new McpServer({ name: "counting", version: "1" });
  server.registerTool("count", { description: "Counts slowly." }, count);
  await server.connect(transport);
  return transport;
}

const listener = createServer(async (request, response) => {
  const transport = sessions.get(request.headers["mcp-session-id"]) ?? (await open());
  await transport.handleRequest(request, response);
});
listener.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${listener.address().port}/mcp`));
