"""llama.cpp: in this process, and its server for a GGUF file, as a child process that speaks OpenAI's protocol.

`llama-server` where it is on the PATH, which answers many at once; else the server of llama-cpp-python, which answers one after
the other. Where no port is asked for, any that is free is taken.
"""

import contextlib
import ctypes
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from journeyman.core.errors import InputError, MissingExtra, ModelError
from journeyman.io.atomic import write_text
from journeyman.io.http_server import listen
from journeyman.io.processes import start_time
from journeyman.optimizers.weights.gguf.contents import Cost, read_header
from journeyman.optimizers.weights.hosting import (
    SMOKE,
    SMOKE_TOKENS,
    ModelServerUnreachable,
    OllamaHostingProfile,
    RequestRefused,
    Wire,
)
from journeyman.optimizers.weights.sizing import detect_hardware

# llama.cpp in this process: it quantises a model in a file, makes its tokens, and says what it predicts.

CONTEXT = 512
_F32 = 0
_ERROR = 4
_errors: deque[str] = deque(maxlen=4)


def _library() -> Any:
    """llama.cpp itself, loaded when it is first needed."""
    import llama_cpp

    _listen_to(llama_cpp)
    return llama_cpp


@cache
def _listen_to(llama_cpp: Any) -> Any:
    """It speaks to stderr at length of what is in the report anyway. Why it would not do a thing, it says nowhere else.

    What it calls is given, and so kept for as long as it may call it.
    """

    @llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
    def collect_errors(level: int, text: bytes, _: ctypes.c_void_p) -> None:
        if level == _ERROR:
            _errors.append(text.decode(errors="replace").strip())

    llama_cpp.llama_log_set(collect_errors, ctypes.c_void_p(0))
    return collect_errors


def llama_cpp_error(doing: str) -> InputError:
    """That llama.cpp would not, and the first thing that it said of it."""
    why = _errors[0] if _errors else "it did not say why"
    _errors.clear()
    return InputError(f"llama.cpp could not {doing}: {why}")


def _half_of_the_cores() -> int:
    # Its threads wait for each other awake: beside other work, one for each core is many times slower than fewer.
    return max(1, len(os.sched_getaffinity(0)) // 2 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 2) // 2)


@contextmanager
def loaded(path: Path, *, threads: int | None = None, context: int = CONTEXT) -> Iterator[Any]:
    """The model in a file, as llama.cpp runs it here (`llama_cpp.Llama`), with nothing rounded besides its weights.

    Raises:
        InputError: llama.cpp does not load it.
    """
    _errors.clear()
    try:
        model = _library().Llama(
            str(path),
            n_ctx=context,
            n_batch=context,
            n_ubatch=context,
            n_threads=threads or _half_of_the_cores(),
            n_threads_batch=threads or _half_of_the_cores(),
            logits_all=True,
            # By default what was attended to is kept in 16 bits.
            type_k=_F32,
            type_v=_F32,
            verbose=False,
        )
    except (ValueError, AssertionError, RuntimeError):
        raise llama_cpp_error(f"load {path.name}") from None
    try:
        yield model
    finally:
        model.close()


@contextmanager
def vocabulary_tokenizer(path: Path) -> Iterator[Callable[[str], list[int]]]:
    """What makes tokens of a text, special ones among them, with only the vocabulary of a file in memory.

    Raises:
        InputError: llama.cpp does not load it.
    """
    _errors.clear()
    llama_cpp = _library()
    parameters = llama_cpp.llama_model_default_params()
    parameters.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(bytes(path), parameters)
    if not model:
        raise llama_cpp_error(f"load the vocabulary of {path.name}")
    vocabulary = llama_cpp.llama_model_get_vocab(model)

    def tokens(text: str) -> list[int]:
        raw = text.encode()
        # A byte is one token at most, and before and behind there may be one each.
        room = (llama_cpp.llama_token * (len(raw) + 8))()
        count = llama_cpp.llama_tokenize(vocabulary, raw, len(raw), room, len(room), True, True)
        return list(room[: max(0, count)])

    try:
        yield tokens
    finally:
        llama_cpp.llama_model_free(model)


def quantise(source: Path, target: Path, kind: str, *, threads: int | None = None) -> None:
    """Write `source` anew with its matrices as `kind`, one of `QUANTISED`.

    Raises:
        InputError: llama.cpp would not.
    """
    llama_cpp = _library()
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}")
    parameters.nthread = threads or 0
    if llama_cpp.llama_model_quantize(bytes(source), bytes(target), ctypes.byref(parameters)):
        raise llama_cpp_error(f"write {source.name} as {kind}")


# What a type costs: how far a quantised model's predictions are from those of the original, token by token.
#
# For each text and each position the probabilities of all tokens are compared: P of the original, Q of the file.
#     perplexity   exp of the mean of -ln Q(the token that follows)
#     divergence   the mean of KL(P || Q) = sum of P ln(P / Q), in nats (Kullback & Leibler 1951)
#     agreement    the share of positions at which both think the same token the likeliest
# as llama.cpp's own perplexity tool has them, here on the texts that the model is for.

TOTAL = 2048
"""Tokens of all texts: with a vocabulary of 150,000 the original's predictions are a file of 1.2 GB for that time."""
REPLY = 64
"""Tokens that the original says at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSample:
    """A text to predict."""

    text: str
    open: bool = False
    """It ends where the model is to speak: the original's reply, the likeliest token each time, belongs to the text."""


class Yardstick:
    """What the original predicts on some texts. A file is held against it with `cost`.

    The predictions lie in a temporary file, so that two models need not be in memory at once. Use it as a context.
    """

    def __init__(
        self, original: Path, texts: Sequence[TextSample], *, threads: int | None = None, context: int = CONTEXT
    ) -> None:
        """`context` is the longest text that the model can take; of a longer one the beginning counts.

        Raises:
            InputError: No text has two tokens, or llama.cpp does not load the original.
        """
        self._threads, self._context = threads, min(context, CONTEXT)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        with loaded(original, threads=threads, context=self._context) as model:
            self._vocabulary: int = model.n_vocab()
            self._texts = _tokens(model, texts, self._context)
            for text in self._texts:
                self._file.write(_log_probabilities(model, text).tobytes())
        if not self._texts:
            raise InputError("there is nothing to measure on: every text has fewer than two tokens")

    def __enter__(self) -> "Yardstick":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def cost(self, path: Path) -> Cost:
        """The cost of a file of the same model and vocabulary."""
        self._file.seek(0)
        with loaded(path, threads=self._threads, context=self._context) as model:
            parts = [self._compared(model, text) for text in self._texts]
        divergence, surprise, before, agreed = (np.concatenate(each) for each in zip(*parts, strict=True))
        return Cost(
            tokens=divergence.size,
            perplexity=_exp(surprise),
            original=_exp(before),
            divergence=float(divergence.mean()),
            worst=float(np.quantile(divergence, 0.99)),
            agreement=float(agreed.mean()),
        )

    def _compared(self, model: Any, text: Sequence[int]) -> tuple[np.ndarray, ...]:
        p = np.frombuffer(self._file.read(len(text) * self._vocabulary * 4), dtype=np.float32).reshape(len(text), -1)
        q = _log_probabilities(model, text)
        # The last position predicts what is not there to be compared with.
        nexts = (np.arange(len(text) - 1), np.asarray(text[1:]))
        divergence = np.array([_divergence(a, b) for a, b in zip(p[:-1], q[:-1], strict=True)])
        return divergence, -q[nexts], -p[nexts], p[:-1].argmax(axis=1) == q[:-1].argmax(axis=1)


def _tokens(model: Any, texts: Sequence[TextSample], most: int) -> list[list[int]]:
    """The texts' tokens, cut, until there are enough."""
    tokens: list[list[int]] = []
    for sample in texts:
        ids = model.tokenize(sample.text.encode(), add_bos=True, special=True)[:most]
        if sample.open:
            ids += _reply(model, ids, min(REPLY, most - len(ids)))
        if sum(map(len, tokens)) + len(ids) > TOTAL:
            break
        if len(ids) > 1:
            tokens.append(ids)
    return tokens


def _reply(model: Any, prompt: Sequence[int], most: int) -> list[int]:
    reply: list[int] = []
    model.reset()
    model.eval(prompt)
    while len(reply) < most and model.token_eos() not in reply:
        reply.append(int(model.scores[model.n_tokens - 1].argmax()))
        model.eval(reply[-1:])
    return reply


def _log_probabilities(model: Any, text: Sequence[int]) -> np.ndarray:
    """Positions x vocabulary, float32."""
    model.reset()
    model.eval(text)
    logits: np.ndarray = np.array(model.scores[: len(text)])
    for row in logits:
        exact = row.astype(np.float64) - row.max()
        row[:] = exact - np.log(np.exp(exact).sum())
    return logits


def _divergence(p: np.ndarray, q: np.ndarray) -> float:
    p, q = p.astype(np.float64), q.astype(np.float64)
    return max(0.0, float((np.exp(p) * (p - q)).sum()))


def _exp(surprise: np.ndarray) -> float:
    return math.exp(float(surprise.astype(np.float64).mean()))


# Its server.

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
