// The TypeScript SDK, second generation, in a session: calls `count` and prints what comes, a JSON
// line each.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const say = (line) => console.log(JSON.stringify(line));
const client = new Client({ name: "counting-sdk-v2", version: "1" }, { versionNegotiation: { mode: "legacy" } });
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
try {
  const onprogress = ({ progress }) => say({ progress });
  const result = await client.callTool({ name: "count", arguments: {} }, { onprogress });
  say({ text: result.content[0].text });
} catch (error) {
  say({ error: error.code ?? error.message });
}
process.exit(0);
