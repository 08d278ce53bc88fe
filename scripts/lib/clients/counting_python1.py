"""The Python SDK, first generation: calls `count` and prints what comes, a JSON line each."""

import asyncio
import json
import sys

from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamablehttp_client


def say(**line: object) -> None:
    print(json.dumps(line), flush=True)


async def progress(value: float, _total: float | None, _message: str | None) -> None:
    say(progress=int(value))


async def main(url: str) -> None:
    async with streamablehttp_client(url) as (reader, writer, _), ClientSession(reader, writer) as session:
        await session.initialize()
        try:
            result = await session.call_tool("count", {}, progress_callback=progress)
            say(text=result.content[0].text)
        except McpError as error:
            say(error=error.error.code)


asyncio.run(main(sys.argv[1]))
