"""The Python SDK, second generation, in one of its modes: lists the tools and calls one."""

import asyncio
import json
import sys

from mcp import Client


async def main(url: str, mode: str, tool: str, arguments: str) -> None:
    async with Client(url, mode="2026-07-28" if mode == "modern" else mode) as client:
        listed = await client.list_tools()
        result = await client.call_tool(tool, json.loads(arguments))
        names = [entry.name for entry in listed.tools]
        text = "\n".join(getattr(block, "text", "") for block in result.content)
        print(json.dumps({"revision": client.protocol_version, "tools": names, "text": text}))


asyncio.run(main(*sys.argv[1:]))
