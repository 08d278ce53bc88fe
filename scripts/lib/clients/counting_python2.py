"""The Python SDK, second generation, in a session: calls `count` and prints what comes, a JSON line each."""

import asyncio
import json
import sys

from mcp import Client, MCPError


def say(**line: object) -> None:
    print(json.dumps(line), flush=True)


async def progress(value: float, _total: float | None, _message: str | None) -> None:
    say(progress=int(value))


async def main(url: str) -> None:
    async with Client(url, mode="legacy") as client:
        try:
            result = await client.call_tool("count", {}, progress_callback=progress)
            say(text=result.content[0].text)
        except MCPError as error:
            say(error=error.error.code)


asyncio.run(main(sys.argv[1]))
