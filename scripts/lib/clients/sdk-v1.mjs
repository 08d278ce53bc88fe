// The TypeScript SDK, first generation: lists the tools and calls one.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [url, , tool, args] = process.argv.slice(2);
const client = new Client({ name: "sdk-v1", version: "1" });
const transport = new StreamableHTTPClientTransport(new URL(url));
await client.connect(transport);
const { tools } = await client.listTools();
const result = await client.callTool({ name: tool, arguments: JSON.parse(args) });
const text = result.content.map((block) => block.text ?? "").join("\n");
console.log(JSON.stringify({ revision: transport.protocolVersion, tools: tools.map(({ name }) => name), text }));
await transport.terminateSession();
await client.close();
