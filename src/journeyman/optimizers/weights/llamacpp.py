"""llama.cpp's server for a GGUF file, as a child process that speaks OpenAI's protocol.

`llama-server` where it is on the PATH, which answers many at once; else the server of llama-cpp-python, which answers one after
the other. Where no port is asked for, any that is free is taken.
"""

import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from journeyman.core.errors import InputError, MissingExtra, ModelError
from journeyman.io.atomic import write_text
from journeyman.io.http_server import listen
from journeyman.io.processes import start_time
from journeyman.optimizers.weights.gguf.contents import read_header
from journeyman.optimizers.weights.hosting import (
    SMOKE,
    SMOKE_TOKENS,
    ModelServerUnreachable,
    OllamaHostingProfile,
    RequestRefused,
    Wire,
)
from journeyman.optimizers.weights.sizing import detect_hardware

WAIT = 300.0
"""Seconds until the model is loaded."""
GRACE = 10.0
"""Seconds a server has to end by itself."""
_PULSE = 0.1
_SERVERS_OWN = frozenset((
    "HOST", "PORT", "ROOT_PATH", "API_KEY", "CONFIG_FILE", "SSL_KEYFILE", "SSL_CERTFILE", "MODEL", "MODEL_ALIAS",
    "LORA_BASE", "LORA_PATH", "CLIP_MODEL_PATH", "DRAFT_MODEL", "CHAT_FORMAT", "N_CTX", "N_GPU_LAYERS",
    "SEED", "NUMA", "CACHE", "EMBEDDING", "VERBOSE",
))  # fmt: skip
"""Variables of the environment that llama-cpp-python's server would take for its settings."""
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A model that answers."""

    url: str
    """What OpenAI's client takes as its base URL."""
    model: str
    """The name to ask for."""
    pid: int
    program: str
    """`llama-server` or `llama-cpp-python`."""
    log: Path
    prompt: str
    reply: str
    """What it said first."""
    seconds: float
    """From its start to its first answer."""


@contextlib.contextmanager
def serve(
    gguf: str | Path, profile: OllamaHostingProfile | None = None, *, model: str = "", port: int = 0, log: Path | None = None
) -> Iterator[Served]:
    """Serve a file as long as the block runs; on loopback alone.

    The server ends with it, and on Linux also when this process is killed, or the thread ends that asked for it.

    Args:
        profile: How; what follows from this machine, without one.
        model: The name to ask for; the file's, without one.
        log: Where the server writes what it has to say; beside the file, without one.

    Raises:
        InputError: The file is no GGUF, or the port is taken.
        MissingExtra: There is no llama.cpp here.
        ModelError: The server ended, or did not answer in time; the end of its log says why.
    """
    started = launch(gguf, profile, model=model, port=port, log=log)
    try:
        yield started.wait()
    finally:
        started.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A server that was started, and may not answer yet."""

    process: subprocess.Popen[bytes]
    wire: Wire
    model: str
    program: str
    log: Path
    began: float

    def wait(self, seconds: float = WAIT) -> Served:
        """Until it answers, and what it says to a greeting.

        Raises:
            ModelError: It ended, or did not answer within so many seconds.
        """
        until = time.monotonic() + seconds
        while not self._ready():
            if self.process.poll() is not None:
                raise ModelError(f"{self.program} ended {_ending(self.process.returncode)} {self._last_words()}")
            if time.monotonic() > until:
                raise ModelError(f"{self.program} did not answer within {seconds:g} s {self._last_words()}")
            time.sleep(_PULSE)
        try:
            reply = ask(self.wire, self.model, SMOKE)
        except (RequestRefused, ModelServerUnreachable) as error:
            raise ModelError(
                f"{self.program} serves {self.model}, which does not answer ({error}) {self._last_words()}"
            ) from None
        return Served(
            url=f"{self.wire.url}/v1",
            model=self.model,
            pid=self.process.pid,
            program=self.program,
            log=self.log,
            prompt=SMOKE,
            reply=reply,
            seconds=time.monotonic() - self.began,
        )

    def stop(self) -> None:
        """End it: politely first."""
        terminate(self.process.pid, lambda: self.process.poll() is not None)
        self.process.wait()

    def _ready(self) -> bool:
        with contextlib.suppress(RequestRefused, ModelServerUnreachable):
            answer = self.wire.call("GET", "/v1/models", timeout=5)
            return self.model in [model.get("id") for model in answer["data"]]
        return False

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
            errors = [line.strip() for line in lines if "rror" in line or "ailed" in line] or lines
            return f"(its log, {self.log}: {' '.join(errors[-1:])[:300]})"
        return f"(its log was to be {self.log})"


def launch(
    gguf: str | Path,
    profile: OllamaHostingProfile | None = None,
    *,
    model: str = "",
    port: int = 0,
    log: Path | None = None,
    detached: bool = False,
) -> Launched:
    """Start a server, and do not wait for it. `detached` outlives this process. Raises like `serve`."""
    path = Path(gguf)
    header = read_header(path)
    profile = profile or OllamaHostingProfile.derive(detect_hardware(), header)
    program, command = _command()
    with listen("127.0.0.1", port) as free:
        port = free.getsockname()[1]
    model, log = model or path.stem, log or path.with_suffix(".log")
    command += _arguments(program, path, model, port, profile)
    with _opened(log) as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={name: value for name, value in os.environ.items() if name.upper() not in _SERVERS_OWN},
            # Ctrl-C at the terminal is for us, who then stop it.
            start_new_session=True,
            preexec_fn=None if detached else _killed_with(os.getpid()),
        )
    wire = Wire(host="127.0.0.1", port=port)
    return Launched(process=process, wire=wire, model=model, program=program, log=log, began=time.monotonic())


def ask(wire: Wire, model: str, prompt: str, *, tokens: int = SMOKE_TOKENS) -> str:
    """What a model says, greedily, by OpenAI's protocol. Raises `Refused` and `Unreachable`."""
    body = {"model": model, "messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, "temperature": 0}
    answer: Any = wire.call("POST", "/v1/chat/completions", body, timeout=WAIT)
    try:
        return str(answer["choices"][0]["message"]["content"] or "")
    except (TypeError, LookupError):
        raise RequestRefused(200, "its answer has no message in it") from None


def terminate(pid: int, gone: Callable[[], bool]) -> None:
    """End a process and those that it started: by SIGTERM, and after `GRACE` seconds by SIGKILL."""
    for number, seconds in ((signal.SIGTERM, GRACE), (signal.SIGKILL, GRACE)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, number)
        until = time.monotonic() + seconds
        while not gone():
            if time.monotonic() > until:
                break
            time.sleep(_PULSE / 2)
        else:
            return


def _command() -> tuple[str, list[str]]:
    """The server that is here, and how it is called."""
    if server := shutil.which("llama-server"):
        return "llama-server", [server]
    missing = [
        name for name in ("llama_cpp", "fastapi", "uvicorn", "sse_starlette", "starlette_context") if not find_spec(name)
    ]
    if missing:
        raise MissingExtra(
            f"{missing[0]} is missing: pip install 'journeyman[gguf]', or put llama.cpp's llama-server on the PATH"
        )
    return "llama-cpp-python", [sys.executable, "-m", "llama_cpp.server"]


def _arguments(program: str, gguf: Path, model: str, port: int, profile: OllamaHostingProfile) -> Sequence[str]:
    common = ["--model", str(gguf), "--host", "127.0.0.1", "--port", str(port)]
    if program == "llama-server":
        return [*common, "--alias", model, "--jinja", *profile.llama_server]
    return [*common, "--model_alias", model, *profile.python_server]


@contextlib.contextmanager
def _opened(log: Path) -> Iterator[Any]:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            yield output
    except OSError as error:
        raise InputError(f"{log} cannot be written ({error.strerror}); name another place for the server's log") from None


def _killed_with(parent: int) -> Callable[[], None] | None:
    """What makes a child end when we are killed, and can no longer stop it. Linux has a word for it."""
    if not sys.platform.startswith("linux"):
        return None
    # Looked up before the fork: behind it nothing may be allocated.
    prctl = ctypes.CDLL(None).prctl
    return partial(_set_death_signal, prctl, parent)


def _set_death_signal(prctl: Callable[[int, int], int], parent: int) -> None:
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _ending(code: int) -> str:
    return f"by signal {-code}" if code < 0 else f"with exit code {code}"


# Servers that outlive the command that started them: a file for each, in a folder of the project.


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A server that was left running."""

    model: str
    url: str
    pid: int
    started: str | None
    """When its process began, in the system's own count: another process may have its number by now. `None` where not told."""
    gguf: str
    log: str

    @property
    def runs(self) -> bool:
        began = start_time(self.pid)
        return began is not None and self.started in (None, began)


def keep(served: Served, gguf: Path, folder: Path) -> RunningServer:
    """Note a server, so that `stop` finds it.

    Raises:
        InputError: The folder cannot be written.
    """
    server = RunningServer(
        model=served.model,
        url=served.url,
        pid=served.pid,
        started=start_time(served.pid),
        gguf=str(gguf.resolve()),
        log=str(served.log),
    )
    write_text(_record_path(folder, served.model), json.dumps(asdict(server)) + "\n")
    return server


def running(folder: Path) -> Iterator[RunningServer]:
    """The servers of a folder that run, by name. What is left of those that ended is cleared away."""
    for path in sorted(folder.glob("*.json")):
        server = _read(path)
        if server is not None and server.runs:
            yield server
        else:
            path.unlink(missing_ok=True)


def stop(folder: Path, model: str) -> RunningServer | None:
    """End a server; `None` when there is none of that name that runs."""
    server = next((each for each in running(folder) if each.model == model), None)
    if server is not None:
        terminate(server.pid, lambda: not server.runs)
        _record_path(folder, model).unlink(missing_ok=True)
    return server


def _record_path(folder: Path, model: str) -> Path:
    return folder / f"{re.sub(r'[^A-Za-z0-9_.-]', '-', model)}.json"


def _read(path: Path) -> RunningServer | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        server = RunningServer(**json.loads(path.read_text(encoding="utf-8")))
        # 0 and below mean groups of processes, ours among them.
        return server if isinstance(server.pid, int) and server.pid > 1 else None
    return None
