"""The Python SDK, first generation, over HTTP+SSE: lists the tools and calls one."""

import asyncio
import json
import sys

from mcp import ClientSession
from mcp.client.sse import sse_client


async def main(url: str, _mode: str, tool: str, arguments: str) -> None:
    async with sse_client(url) as (reader, writer), ClientSession(reader, writer) as session:
        opened = await session.initialize()
        listed = await session.list_tools()
        result = await session.call_tool(tool, json.loads(arguments))
        names = [entry.name for entry in listed.tools]
        text = "\n".join(getattr(block, "text", "") for block in result.content)
        print(json.dumps({"revision": opened.protocolVersion, "tools": names, "text": text}))


asyncio.run(main(*sys.argv[1:]))
