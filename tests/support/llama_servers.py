"""A `llama-server` on the PATH: a small program that takes its arguments and speaks some of OpenAI's protocol."""

import sys
from pathlib import Path

_PROGRAM = """#!{python}
import json, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer

flags = [each for each in sys.argv[1:] if each != "--jinja"]
arguments = dict(zip(flags[::2], flags[1::2]))
print("arguments:", json.dumps(arguments), flush=True)
{first}

class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass
    def do_GET(self):
        self.say({{"data": [{{"id": arguments["--alias"]}}]}})
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.say({{"choices": [{{"message": {{"content": "you said " + asked["messages"][-1]["content"]}}}}]}})
    def say(self, found):
        content = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

HTTPServer((arguments["--host"], int(arguments["--port"])), Handler).serve_forever()
"""


def llama_server(folder: Path, first: str = "") -> Path:
    """The folder to put on the PATH. `first` is done before anything is answered."""
    folder.mkdir(exist_ok=True)
    program = folder / "llama-server"
    program.write_text(_PROGRAM.format(python=sys.executable, first=first))
    program.chmod(0o755)
    return folder
