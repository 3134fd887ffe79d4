"""A real HTTP server on loopback that speaks Ollama's documented API, and can go wrong in the ways that it does.

It keeps blobs by digest and models by name, as files in a folder. It runs no model: `answer` says what is replied.
"""

import hashlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_BLOB = re.compile(r"/api/blobs/sha256:([0-9a-f]{64})")
_NAME = re.compile(r"[\w.-]+(/[\w.-]+){0,2}(:[\w.-]+)?")


@dataclass(slots=True)
class Ollama:
    """What it keeps, what it was asked, and how it is to go wrong."""

    folder: Path
    url: str = ""
    version: str | None = "0.12.3"
    """`None` is no Ollama at all."""
    answer: Callable[[str, list[dict[str, Any]]], str] = lambda model, messages: "Hello!"
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Method and path, in order."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    contents: list[bytes] = field(default_factory=list)
    """Those bodies, as they came."""
    headers: list[dict[str, str]] = field(default_factory=list)
    kept_loaded: list[tuple[str, Any]] = field(default_factory=list)
    """Models that were only to be loaded, and for how long."""
    full_after: int | None = None
    """Bytes of blobs that the disk holds."""
    breaks_after: int | None = None
    """Hang up when so many bytes of a blob have come."""
    create_error: str = ""
    chat_error: str = ""
    password: str = ""

    @property
    def blobs(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*"))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Ollama

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer("HEAD")

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def _answer(self, method: str) -> None:
        state = self.state
        state.asked.append((method, self.path))
        state.headers.append(dict(self.headers))
        if state.password and self.headers.get("Authorization") != state.password:
            self._json(401, {"error": "unauthorized"})
        elif blob := _BLOB.fullmatch(self.path):
            self._blob(method, blob[1])
        elif state.version is None:
            self._json(404, {"detail": "Not Found"})
        elif (method, self.path) == ("POST", "/v1/chat/completions"):
            self._completion()
        else:
            route = getattr(self, f"_{method}_{self.path.removeprefix('/api/')}".lower(), None)
            if route is None:
                self._json(404, {"error": "404 page not found"})
            else:
                route()

    def _blob(self, method: str, digest: str) -> None:
        path = self.state.folder / digest
        if method == "HEAD":
            self._empty(200 if path.exists() else 404)
            return
        size, content = int(self.headers["Content-Length"]), b""
        while len(content) < size:
            content += self.rfile.read(min(2**16, size - len(content)))
            if self.state.breaks_after is not None and len(content) >= self.state.breaks_after:
                self.close_connection = True
                self.connection.close()
                return
            if self.state.full_after is not None and len(content) > self.state.full_after:
                self.close_connection = True
                self._json(500, {"error": f"write {path}: no space left on device"})
                # As Go does: half a second for the answer to be read, before the line is cut.
                self.connection.shutdown(socket.SHUT_WR)
                time.sleep(0.5)
                return
        if hashlib.sha256(content).hexdigest() != digest:
            self._json(400, {"error": f'digest mismatch, expected "sha256:{digest}", got another'})
            return
        path.write_bytes(content)
        self._empty(201)

    def _get_version(self) -> None:
        self._json(200, {"version": self.state.version})

    def _get_tags(self) -> None:
        models = [
            {"name": name, "model": name, "size": made["size"], "digest": made["digest"], "modified_at": "2026-01-01T00:00:00Z"}
            for name, made in self.state.models.items()
        ]
        self._json(200, {"models": models})

    def _post_show(self) -> None:
        found = self.state.models.get(_full(self._body().get("model", "")))
        if found is None:
            self._json(404, {"error": "model not found"})
            return
        told = {name: found["request"].get(name, "") for name in ("template", "system", "license")}
        self._json(200, {**told, "parameters": json.dumps(found["request"].get("parameters", {}))})

    def _post_create(self) -> None:
        body = self._body()
        unknown = body.keys() - {"model", "files", "template", "system", "license", "parameters", "messages", "from", "stream"}
        if unknown:
            self._json(400, {"error": f"unexpected: {', '.join(sorted(unknown))}"})
            return
        if not _NAME.fullmatch(body.get("model", "")):
            self._json(400, {"error": "invalid model name"})
            return
        digests = [value.removeprefix("sha256:") for value in body.get("files", {}).values()]
        missing = next((digest for digest in digests if not (self.state.folder / digest).exists()), None)
        if missing or not digests:
            self._json(400, {"error": f"blob not found (digest sha256:{missing})"})
            return
        steps: list[dict[str, Any]] = [{"status": "parsing GGUF"}]
        weights = (self.state.folder / digests[0]).read_bytes()
        if not weights.startswith(b"GGUF"):
            steps.append({"error": "supplied file was not in GGUF format", "status": 400})
        elif self.state.create_error:
            steps.append({"error": self.state.create_error})
        else:
            made = {"request": body, "size": len(weights), "digest": digests[0]}
            self.state.models[_full(body["model"])] = made
            steps += [
                {"status": f"using existing layer sha256:{digests[0]}"},
                {"status": "writing manifest"},
                {"status": "success"},
            ]
        self._stream(steps)

    def _post_chat(self) -> None:
        body = self._body()
        if _full(body["model"]) not in self.state.models:
            self._json(404, {"error": f'model "{body["model"]}" not found, try pulling it first'})
        elif self.state.chat_error:
            self._json(500, {"error": self.state.chat_error})
        else:
            text = self.state.answer(body["model"], body["messages"])
            message = {"role": "assistant", "content": text}
            self._json(200, {"model": body["model"], "message": message, "done": True, "eval_count": len(text.split())})

    def _completion(self) -> None:
        """As OpenAI's API has it."""
        body = self._body()
        model = body["model"]
        if _full(model) not in self.state.models:
            error = {"message": f'model "{model}" not found, try pulling it first', "type": "not_found_error"}
            self._json(404, {"error": error})
        elif self.state.chat_error:
            self._json(500, {"error": {"message": self.state.chat_error, "type": "api_error"}})
        else:
            message = {"role": "assistant", "content": self.state.answer(model, body["messages"])}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self._json(
                200, {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model, "choices": [choice]}
            )

    def _post_generate(self) -> None:
        body = self._body()
        if _full(body["model"]) not in self.state.models:
            self._json(404, {"error": f"model '{body['model']}' not found"})
            return
        if "prompt" not in body:
            self.state.kept_loaded.append((body["model"], body.get("keep_alive")))
            self._json(200, {"model": body["model"], "response": "", "done": True, "done_reason": "load"})
            return
        text = self.state.answer(body["model"], [{"role": "user", "content": body["prompt"]}])
        self._json(200, {"model": body["model"], "response": text, "done": True, "eval_count": len(text.split())})

    def _delete_delete(self) -> None:
        name = self._body().get("model", "")
        if self.state.models.pop(_full(name), None) is None:
            self._json(404, {"error": f"model '{name}' not found"})
        else:
            self._empty(200)

    def _body(self) -> dict[str, Any]:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.state.contents.append(content)
        found: dict[str, Any] = json.loads(content or b"{}")
        self.state.bodies.append(found)
        return found

    def _stream(self, objects: list[dict[str, Any]]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for each in objects:
            line = json.dumps(each).encode() + b"\n"
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def _json(self, status: int, found: object) -> None:
        content = b"" if self.command == "HEAD" else json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _empty(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()


def _full(name: str) -> str:
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


@contextmanager
def serving(folder: Path) -> Iterator[Ollama]:
    """The server, in threads of its own on a free port; it keeps its blobs in `folder`."""
    state = Ollama(folder)
    folder.mkdir(parents=True, exist_ok=True)
    handler = type("Handler", (_Handler,), {"state": state})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        state.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield state
        server.shutdown()
        thread.join(timeout=10)
