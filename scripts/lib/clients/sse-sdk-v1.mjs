// The TypeScript SDK, first generation, over HTTP+SSE: lists the tools and calls one.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";

const [url, , tool, args] = process.argv.slice(2);
const client = new Client({ name: "sse-sdk-v1", version: "1" });
const transport = new SSEClientTransport(new URL(url));
let revision;
// The SDK tells its transport what was negotiated.
const told = transport.setProtocolVersion?.bind(transport);
transport.setProtocolVersion = (version) => told?.((revision = version));
await client.connect(transport);
const { tools } = await client.listTools();
const result = await client.callTool({ name: tool, arguments: JSON.parse(args) });
const text = result.content.map((block) => block.text ?? "").join("\n");
console.log(JSON.stringify({ revision, tools: tools.map(({ name }) => name), text }));
await client.close();
