# Prints what json.loads makes of each line of hexadecimal; the form is described in main.rs.
import json
import struct
import sys


def own(value, key):
    return value.get(key) if isinstance(value, dict) else None


def field(value):
    if value is None:
        return "-"
    if isinstance(value, str):
        return "s" + value.encode("utf-8", "surrogatepass").hex()
    if isinstance(value, bool):
        return "b" + str(value).lower()
    if isinstance(value, list):
        return "a"
    if isinstance(value, dict):
        return "o"
    try:
        number = float(value)
    except OverflowError:
        number = float("inf") if value > 0 else float("-inf")
    return "n" + struct.pack(">d", number if number != 0 else 0.0).hex()


def read(line):
    try:
        message = json.loads(bytes.fromhex(line))
    except (ValueError, RecursionError):
        return "refused"
    method = own(message, "method")
    params = own(message, "params") if method is not None else None
    fields = (method, own(params, "name"), own(params, "uri"), own(message, "id"))
    return " ".join(field(value) for value in (*fields, own(own(params, "_meta"), "progressToken")))


lines = sys.stdin.read().split("\n")[:-1]
sys.stdout.write("".join(read(line) + "\n" for line in lines))
