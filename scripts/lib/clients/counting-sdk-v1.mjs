// The TypeScript SDK, first generation: calls `count` and prints what comes, a JSON line each.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const say = (line) => console.log(JSON.stringify(line));
const client = new Client({ name: "counting-sdk-v1", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
try {
  const onprogress = ({ progress }) => say({ progress });
  const result = await client.callTool({ name: "count", arguments: {} }, undefined, { onprogress });
  say({ text: result.content[0].text });
} catch (error) {
  say({ error: error.code ?? error.message });
}
process.exit(0);
