// The TypeScript SDK, second generation, in one of its modes: lists the tools
// and calls one.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url, mode, tool, args] = process.argv.slice(2);
const negotiation = mode === "modern" ? { pin: "2026-07-28" } : mode;
const client = new Client({ name: "sdk-v2", version: "1" }, { versionNegotiation: { mode: negotiation } });
const transport = new StreamableHTTPClientTransport(new URL(url));
await client.connect(transport);
const { tools } = await client.listTools();
const result = await client.callTool({ name: tool, arguments: JSON.parse(args) });
const text = result.content.map((block) => block.text ?? "").join("\n");
const revision = client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion;
console.log(JSON.stringify({ revision, tools: tools.map(({ name }) => name), text }));
if (transport.sessionId) await transport.terminateSession();
await client.close();
