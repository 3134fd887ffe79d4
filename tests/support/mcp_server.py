"""A server of the Model Context Protocol, for tests: it knows where parcels go, and can go wrong in the ways that servers do.

python mcp_server.py [silent|dies|noisy|refuses]
"""

import json
import os
import sys
import time
from typing import Any

PAGES: list[list[dict[str, Any]]] = [
    [{"name": "zones/of", "description": "The zone of a country.", "inputSchema": {
        "type": "object", "properties": {"country": {"type": "string"}}, "required": ["country"]}}],
    [{"name": "read", "description": "A page of the handbook.", "inputSchema": {"type": "object"}},
     {"name": "secrets", "description": "What it can see.", "inputSchema": {"type": "object"}}],
]  # fmt: skip


def answer(method: str, told: dict[str, Any]) -> dict[str, Any]:
    """The result of a request."""
    if method == "initialize":
        return {
            "protocolVersion": told["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "zones", "version": "1"},
        }
    if method == "tools/list":
        page = int(told.get("cursor", "0"))
        return {"tools": PAGES[page], **({"nextCursor": str(page + 1)} if page + 1 < len(PAGES) else {})}
    name, arguments = told["name"], told["arguments"]
    if name == "zones/of":
        if "country" not in arguments:
            return {"content": [{"type": "text", "text": "which country?"}], "isError": True}
        return {"content": [{"type": "text", "text": f"{arguments['country'].upper()} is in zone 2"}]}
    if name == "secrets":
        return {
            "content": [
                {"type": "text", "text": " ".join(sorted(os.environ))},
                {"type": "image", "mimeType": "image/png", "data": ""},
            ]
        }
    return {"content": [], "structuredContent": {"page": "Zones are looked up in capital letters."}}


def main() -> None:
    """Answer line by line, to the end of the input."""
    way = sys.argv[1] if len(sys.argv) > 1 else ""
    if way == "dies":
        sys.exit("no licence for zones found")
    for line in sys.stdin:
        told = json.loads(line)
        if way == "silent":
            time.sleep(60)
        if "id" not in told:
            continue
        if way == "noisy":
            print("a print that went astray", flush=True)
            print(json.dumps({"jsonrpc": "2.0", "id": "p", "method": "ping"}), flush=True)
            assert json.loads(sys.stdin.readline())["result"] == {}
        if told["method"] not in ("initialize", "tools/list", "tools/call"):
            said: dict[str, Any] = {"error": {"code": -32601, "message": "no such method"}}
        elif way == "refuses" and told["method"] == "tools/call":
            said = {"error": {"code": -32602, "message": "unknown tool"}}
        else:
            said = {"result": answer(told["method"], told.get("params") or {})}
        print(json.dumps({"jsonrpc": "2.0", "id": told["id"], **said}), flush=True)


if __name__ == "__main__":
    main()
