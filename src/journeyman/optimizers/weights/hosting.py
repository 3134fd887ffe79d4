"""How a model is served on this machine: how many requests at once, of which length, on how many threads, and why; and the
HTTP that its server is spoken to with.

What decides is memory. Beside the weights a server keeps a key and a value of each token of each request:

    bytes = requests × context × layers × key-value heads × (key length + value length) × bytes a number

and a buffer for one batch: 512 tokens × vocabulary × 4 bytes of logits, and as much again for what leads to them.
"""

import json
import select
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, Self

from journeyman.core.errors import InputError, SettingError
from journeyman.optimizers.weights.gguf.contents import Header
from journeyman.optimizers.weights.sizing import HardwareConfig, Reason

CONTEXT = 4096
"""Tokens of one request, prompt and answer, where nobody asks for others."""
LEAST_CONTEXT = 512
MOST = 8
"""Requests at once, at most: each makes the others wait."""
BATCH = 512
"""Tokens that llama.cpp works on at once."""
SHARE = 0.8
"""Of the memory, for the server: the rest is the system's, and that of whoever asks."""
CACHE_BYTES = {"f16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}
"""Of a number in the cache: blocks of 32 share a scale of two bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OllamaHostingProfile:
    """Settings of a server, for Ollama and llama.cpp alike. Those of a Ryzen 9 5950X, where nothing else is said."""

    num_parallel: int = 4
    """Requests that are answered at once."""
    num_ctx: int = CONTEXT
    """Tokens of one request, prompt and answer."""
    num_thread: int | None = 14
    """`None` leaves it to the server."""
    flash_attention: bool = False
    """Force it on; otherwise the server takes it where it knows how to."""
    kv_cache_type: str = "f16"
    """`q8_0` halves the cache and `q4_0` quarters it, at the price of precision; both need flash attention."""
    gpu_layers: int | None = None
    """Layers on the GPU, -1 for all; `None` leaves it to the server."""
    reasons: tuple[Reason, ...] = ()

    def __post_init__(self) -> None:
        for name, least in (("num_parallel", 1), ("num_ctx", 1), ("num_thread", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise SettingError(name, f"{{}} is {value}, and must be at least {least}")
        if self.kv_cache_type not in CACHE_BYTES:
            raise SettingError("kv_cache_type", f"{{}} is {self.kv_cache_type!r}, and must be one of {', '.join(CACHE_BYTES)}")
        if self.kv_cache_type != "f16" and not self.flash_attention:
            raise SettingError("kv_cache_type", f"{{}} is {self.kv_cache_type!r}: such a cache needs flash_attention")

    @classmethod
    def ryzen(cls) -> Self:
        """For a Ryzen 9 5950X with 40 GB of memory and a model of 1.5B."""
        return cls(
            reasons=(
                Reason("num_parallel", 4, "as many as 14 threads keep going"),
                Reason("num_ctx", CONTEXT, "a conversation with tools, and its answer"),
                Reason("num_thread", 14, "16 cores, and 2 for the system"),
            )
        )

    @classmethod
    def derive(
        cls, hardware: HardwareConfig, model: Header, *, context: int | None = None, parallel: int | None = None
    ) -> Self:
        """For this machine and this model.

        Args:
            context: Tokens of one request; fewer where the memory does not hold them.
            parallel: Requests at once, at most.

        Raises:
            InputError: Not even one request of `LEAST_CONTEXT` tokens fits.
        """
        # Whether torch can use the GPU does not matter: the server is another program.
        on_gpu = max((gpu.memory_total or 0 for gpu in hardware.gpus), default=0)
        gpu = bool(on_gpu) and _holds(on_gpu, model)
        memory = on_gpu if gpu else hardware.ram
        threads = max(1, hardware.threads - (2 if hardware.threads >= 8 else 1))
        wanted = min(context or CONTEXT, model.context_length or context or CONTEXT)
        room = _room(memory, model)
        num_ctx = wanted
        while room is not None and num_ctx > LEAST_CONTEXT and cache_bytes(model, num_ctx) > room:
            num_ctx //= 2
        each = cache_bytes(model, num_ctx)
        if room is not None and each > room:
            raise InputError(
                f"{model.path.name} does not fit: {_size(model.size)} of weights and {_size(each)} for {num_ctx} tokens are "
                f"more than {SHARE:.0%} of {_size(memory or 0)}; take a smaller type, such as Q4_K_M, or a smaller model"
            )
        fitting = int(room // each) if room is not None and each else None
        busy = MOST if gpu else max(1, min(MOST, threads // 3))
        most = min(parallel or busy, fitting or 1)
        return cls(
            num_parallel=most,
            num_ctx=num_ctx,
            num_thread=threads,
            flash_attention=gpu,
            gpu_layers=-1 if gpu else None,
            reasons=(
                Reason("num_parallel", most, _why_parallel(fitting, busy, each, room, None if gpu else threads)),
                Reason("num_ctx", num_ctx, _why_context(num_ctx, wanted, model)),
                Reason("num_thread", threads, _why_threads(hardware.threads, threads)),
                *_why_gpu(bool(on_gpu), gpu),
            ),
        )

    @property
    def parameters(self) -> dict[str, int]:
        """What goes into a Modelfile as PARAMETER: what belongs to the model."""
        values = {"num_ctx": self.num_ctx, "num_thread": self.num_thread, "num_gpu": self.gpu_layers}
        # Ollama's own way to say all layers is to say nothing.
        return {name: value for name, value in values.items() if value is not None and value >= 0}

    @property
    def environment(self) -> dict[str, str]:
        """What Ollama's server must be started with: it takes these from nowhere else."""
        variables = {"OLLAMA_NUM_PARALLEL": str(self.num_parallel), "OLLAMA_CONTEXT_LENGTH": str(self.num_ctx)}
        if self.flash_attention:
            variables["OLLAMA_FLASH_ATTENTION"] = "1"
        if self.kv_cache_type != "f16":
            variables["OLLAMA_KV_CACHE_TYPE"] = self.kv_cache_type
        return variables

    @property
    def llama_server(self) -> list[str]:
        """Arguments of llama.cpp's `llama-server`, whose context is that of all requests together."""
        arguments = ["--parallel", str(self.num_parallel), "--ctx-size", str(self.num_ctx * self.num_parallel)]
        if self.num_thread is not None:
            arguments += ["--threads", str(self.num_thread)]
        if self.flash_attention:
            arguments += ["--flash-attn", "on"]
        if self.kv_cache_type != "f16":
            arguments += ["--cache-type-k", self.kv_cache_type, "--cache-type-v", self.kv_cache_type]
        if self.gpu_layers is not None:
            arguments += ["--n-gpu-layers", str(999 if self.gpu_layers < 0 else self.gpu_layers)]
        return arguments

    @property
    def python_server(self) -> list[str]:
        """Arguments of llama-cpp-python's server, which answers one request after the other."""
        # Its scores of every token of the context would be vocabulary × context × 4 bytes: gigabytes that nobody reads.
        arguments = ["--n_ctx", str(self.num_ctx), "--logits_all", "false", "--interrupt_requests", "false"]
        if self.num_thread is not None:
            arguments += ["--n_threads", str(self.num_thread), "--n_threads_batch", str(self.num_thread)]
        if self.flash_attention:
            arguments += ["--flash_attn", "true"]
        if self.kv_cache_type != "f16":
            kind = {"q8_0": "8", "q4_0": "2"}[self.kv_cache_type]
            arguments += ["--type_k", kind, "--type_v", kind]
        if self.gpu_layers is not None:
            arguments += ["--n_gpu_layers", str(self.gpu_layers)]
        return arguments


def cache_bytes(model: Header, tokens: int, kind: str = "f16") -> float:
    """Bytes of the key-value cache for so many tokens; 0 where the file does not tell the model's shape."""
    return tokens * (model.cache_values or 0) * CACHE_BYTES[kind]


def _room(memory: int | None, model: Header) -> float | None:
    """Bytes for caches; `None` where the memory is not known."""
    return None if memory is None else memory * SHARE - model.size - 2 * BATCH * model.vocabulary * 4


def _holds(memory: int | None, model: Header) -> bool:
    """Whether a GPU takes the whole model. Half of it there is slower than all of it beside."""
    room = _room(memory, model)
    return room is not None and room >= cache_bytes(model, LEAST_CONTEXT)


def _why_parallel(fitting: int | None, busy: int, each: float, room: float | None, threads: int | None) -> str:
    if fitting is None or room is None:
        return "one, as the memory or the model's shape is not known"
    held = f"{_size(room)} beside the weights hold {fitting} caches of {_size(each)}"
    what = "a GPU" if threads is None else "one thread" if threads == 1 else f"{threads} threads"
    return f"{held}; {what} can keep {busy} going"


def _why_threads(cores: int, threads: int) -> str:
    # They wait for each other by spinning: on two busy cores two threads took 1.8 s a token, and one took 0.18 ms.
    left = cores - threads
    return f"{cores} cores, {left} of them for the system" if left else "one core"


def _why_context(num_ctx: int, wanted: int, model: Header) -> str:
    if num_ctx < wanted:
        return f"{wanted} tokens do not fit into memory"
    if num_ctx == model.context_length:
        return "the model was trained for no more"
    return "a conversation with tools, and its answer" if num_ctx == CONTEXT else "as asked"


def _why_gpu(here: bool, used: bool) -> list[Reason]:
    if used:
        why = "a GPU is here, and its attention is what grows with the context"
        return [Reason("flash_attention", True, why), Reason("gpu_layers", -1, "the whole model fits on the GPU")]
    return [Reason("gpu_layers", None, "the GPU does not hold the whole model; the server divides it")] if here else []


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


# A little HTTP, for servers of models: JSON there, JSON or a line of it at a time back, and files of many gigabytes there.

SMOKE = "Say hello."
"""What a model is asked first, to see that it answers."""
SMOKE_TOKENS = 16
CHUNK = 2**20
"""Bytes of a file sent at a time."""
LONGEST = 2**24
"""Bytes of an answer, or of one line of it."""


class ModelServerUnreachable(Exception):
    """Nobody answers, or the connection broke; says why in a few words."""


class RequestRefused(Exception):
    """The server answered, and said no."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said or f"status {status}")
        self.status = status
        self.said = said
        """Its own words, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """One server. Each call has a connection of its own."""

    host: str
    port: int
    path: str = ""
    """Before every path that is asked for, as `/ollama`."""
    tls: bool = False
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent along: here stand secrets."""
    timeout: float = 30.0
    """Seconds in which something must come, unless a call says otherwise."""

    @property
    def url(self) -> str:
        """As it is typed, without secrets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.path}"

    def call(self, method: str, path: str, body: Any = None, *, timeout: float | None = None) -> Any:
        """The answer's JSON, `None` where it has none.

        Raises:
            Unreachable: There is no answer.
            Refused: Its status is not one of success.
        """
        content = None if body is None else json.dumps(body).encode()
        with self._answer(method, path, content, timeout=timeout) as answer:
            text = answer.read(LONGEST)
        with suppress(ValueError):
            return json.loads(text)
        return None

    def lines(self, method: str, path: str, body: Any, *, timeout: float | None = None) -> Iterator[Mapping[str, Any]]:
        """The objects of an answer in JSON lines, as they come. Raises like `call`."""
        with self._answer(method, path, json.dumps(body).encode(), timeout=timeout) as answer:
            while line := answer.readline(LONGEST):
                with suppress(ValueError):
                    found = json.loads(line)
                    if isinstance(found, dict):
                        yield found

    def send(self, path: str, file: Path, sent: Callable[[int], None], *, timeout: float | None = None) -> None:
        """POST a file; `sent` is told how many bytes have gone so far. Raises like `call`."""

        def write(connection: HTTPConnection) -> None:
            self._open(connection, "POST", path, file.stat().st_size, "application/octet-stream")
            done = 0
            with file.open("rb") as content:
                while (chunk := content.read(CHUNK)) and not self._answers_early(connection):
                    connection.send(chunk)
                    done += len(chunk)
                    sent(done)

        with self._answered(write, timeout) as answer:
            answer.read(LONGEST)

    @contextmanager
    def _answer(self, method: str, path: str, content: bytes | None, *, timeout: float | None) -> Iterator[HTTPResponse]:
        def write(connection: HTTPConnection) -> None:
            self._open(connection, method, path, len(content or b""), "application/json")
            if content:
                connection.send(content)

        with self._answered(write, timeout) as answer:
            yield answer

    def _open(self, connection: HTTPConnection, method: str, path: str, length: int, kind: str) -> None:
        connection.putrequest(method, self.path + path)
        for name, value in {**self.headers, "Content-Type": kind, "Content-Length": str(length)}.items():
            connection.putheader(name, value)
        connection.endheaders()

    def _answers_early(self, connection: HTTPConnection) -> bool:
        """Whether the server says no in the middle of a file. Through TLS that cannot be seen: it speaks for itself."""
        return not self.tls and bool(select.select([connection.sock], [], [], 0)[0])

    @contextmanager
    def _answered(self, write: Callable[[HTTPConnection], None], timeout: float | None) -> Iterator[HTTPResponse]:
        made = HTTPSConnection if self.tls else HTTPConnection
        with closing(made(self.host, self.port, timeout=timeout or self.timeout)) as connection:
            try:
                # A server that hangs up in the middle of a file may have said why: that is still there to be read.
                with suppress(BrokenPipeError, ConnectionResetError):
                    write(connection)
                answer = connection.getresponse()
                if not 200 <= answer.status < 300:
                    raise RequestRefused(answer.status, _said(answer.read(LONGEST)))
                yield answer
            except TimeoutError:
                raise ModelServerUnreachable(f"nothing came for {timeout or self.timeout:g} s") from None
            except (OSError, HTTPException, ValueError) as error:
                raise ModelServerUnreachable(_why(error)) from None


def _said(text: bytes) -> str:
    """What a server gives as its reason: the `error` of Ollama, or the `error.message` of OpenAI's protocol, or its words."""
    spoken = text.decode("utf-8", "replace").strip()
    with suppress(ValueError, AttributeError):
        found = json.loads(text).get("error", "")
        spoken = str(found.get("message", found) if isinstance(found, dict) else found)
    return " ".join(spoken.split())[:300]


def _why(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return "there is no such host"
    return str(getattr(error, "strerror", None) or error or type(error).__name__)
