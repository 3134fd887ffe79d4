"""A GGUF file becomes a model of Ollama, by its REST API: https://docs.ollama.com/api."""

import base64
import ipaddress
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from journeyman.core.errors import InputError, MissingExtra, ModelBusy, ModelError, ModelRefused
from journeyman.io.atomic import write_text
from journeyman.io.files import sha256
from journeyman.io.http_server import is_loopback
from journeyman.optimizers.weights.gguf.contents import Header, read_header
from journeyman.optimizers.weights.hosting import (
    CONTEXT,
    SMOKE,
    SMOKE_TOKENS,
    ModelServerUnreachable,
    OllamaHostingProfile,
    RequestRefused,
    Wire,
)
from journeyman.optimizers.weights.sizing import detect_hardware

# Where Ollama is, by what a user or OLLAMA_HOST says, understood as Ollama's own client does.

PORT = 11434
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what a server listens on; whoever asks goes to loopback


def wire_of(host: str | None = None, environment: Mapping[str, str] = os.environ) -> Wire:
    """The server that `host` means, else OLLAMA_HOST, else the one on this machine.

    `host`, `host:port`, `:port`, `[::1]`, `http://…`, `https://…/path`. The port is 11434, behind http:// 80 and behind https://
    443. A name and password in it, and OLLAMA_API_KEY, are sent along and never shown.

    Raises:
        InputError: It cannot be meant.
    """
    text = (host if host is not None else environment.get("OLLAMA_HOST", "")).strip().strip("\"'").strip()
    scheme, found, rest = text.partition("://")
    if not found:
        scheme, rest = "http", text
    if scheme not in ("http", "https"):
        raise InputError(f"Ollama's host begins with {scheme}://, and must with http:// or https://")
    usual = PORT if not found else 443 if scheme == "https" else 80
    authority, _, path = rest.partition("/")
    login, at, place = authority.rpartition("@")
    name, port = _split(place if at else authority, usual)
    return Wire(
        host=_ANYWHERE.get(name, name),
        port=port,
        path="/" + path.strip("/") if path.strip("/") else "",
        tls=scheme == "https",
        headers=_secrets(login, environment.get("OLLAMA_API_KEY", "")),
    )


def _split(place: str, usual: int) -> tuple[str, int]:
    """A host and its port; `usual` where there is none."""
    try:
        # An IPv6 address without brackets has colons, and no port.
        return str(ipaddress.ip_address(place.strip("[]"))), usual
    except ValueError:
        pass
    name, colon, port = place.rpartition(":")
    if not colon:
        return place or "127.0.0.1", usual
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InputError(f"Ollama's host {place} has the port {port!r}, and must have one from 0 to 65535")
    return name.strip("[]") or "127.0.0.1", int(port)


def _secrets(login: str, key: str) -> dict[str, str]:
    if login:
        return {"Authorization": "Basic " + base64.b64encode(unquote(login).encode()).decode()}
    return {"Authorization": f"Bearer {key.strip()}"} if key.strip() else {}


# A model as Ollama is told of it: what stands in a Modelfile, and the same as a request of its REST API.

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}")
"""Of a name: what Ollama takes as a namespace, a model or a tag."""

Value = str | int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Modelfile:
    """https://docs.ollama.com/modelfile"""

    weights: str
    """The GGUF file's name."""
    template: str = ""
    """In Go; without one Ollama looks whether it knows the model's own."""
    system: str = ""
    licence: str = ""
    parameters: Mapping[str, Value | tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("template", "system", "licence"):
            if '"""' in getattr(self, name):
                raise InputError(f'the {name} has """ in it, which no Modelfile can hold: leave them out')

    @property
    def text(self) -> str:
        """As `ollama create -f` takes it, from the folder in which the weights lie."""
        lines = [f"FROM ./{self.weights}"]
        texts = {"TEMPLATE": self.template, "SYSTEM": self.system, "LICENSE": self.licence}
        lines += [f'{keyword} """{text}"""' for keyword, text in texts.items() if text]
        for name, value in self.parameters.items():
            several = value if isinstance(value, tuple) else (value,)
            for one in several:
                lines.append(f"PARAMETER {name} {_quoted(one)}")
        return "\n".join(lines) + "\n"

    def request(self, name: str, digest: str) -> dict[str, Any]:
        """The body of POST /api/create, the weights being a blob of that digest."""
        body = {"template": self.template, "system": self.system, "license": self.licence, "parameters": dict(self.parameters)}
        return {"model": name, "files": {self.weights: f"sha256:{digest}"}} | {
            key: value for key, value in body.items() if value
        }


def check_name(name: str) -> str:
    """The name, if Ollama takes it: `[host/][namespace/]model[:tag]`.

    Raises:
        InputError: It does not.
    """
    where, _, tag = name.rpartition(":") if ":" in name.rpartition("/")[2] else (name, "", "latest")
    *before, model = where.split("/")
    host, namespace = ([""] * 2 + before)[-2:] if len(before) <= 2 else ("?", "?")
    fine = _PART.fullmatch(model) and _PART.fullmatch(tag) and (not namespace or _PART.fullmatch(namespace))
    if not fine or (host and not re.fullmatch(r"[A-Za-z0-9_.:-]+", host)) or "" in before:
        raise InputError(
            f"Ollama takes no model called {name!r}: letters, digits, . _ and -, as in toolbox-agent or me/desk:v2"
        )
    return name


def _quoted(value: Value) -> str:
    if not isinstance(value, str):
        return str(value)
    return f'"""{value}"""' if '"' in value or "\n" in value else f'"{value}"'


OLDEST = (0, 5, 5)
"""The first version that makes a model of blobs, as it is done today."""
PATIENCE = 600.0
"""Seconds without a word while a model is made or loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentProgress:
    """A step on the way: in Ollama's words, and in bytes where some are sent."""

    status: str
    completed: int | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What would be sent."""

    name: str
    url: str
    gguf: Path
    size: int
    """Bytes."""
    digest: str
    """SHA-256 of the file, in hexadecimal."""
    modelfile: Modelfile
    profile: OllamaHostingProfile
    notes: tuple[str, ...]
    """What of the model's chat template Ollama's will not do."""

    @property
    def request(self) -> dict[str, Any]:
        """The body of POST /api/create."""
        return self.modelfile.request(self.name, self.digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """A model that Ollama has, and what it said first."""

    deployment: Deployment
    version: str
    """Ollama's."""
    uploaded: bool
    """Whether the weights were sent; they were there already otherwise."""
    modelfile: Path
    """Where the Modelfile was written."""
    prompt: str
    reply: str
    tokens: int | None
    seconds: float
    """Of the first answer, loading included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A model as Ollama lists it."""

    name: str
    size: int | None
    digest: str
    modified_at: str


class OllamaDeployer:
    """Puts models on one Ollama server, asks them, and takes them off again.

    OllamaDeployer().create_model("toolbox-agent", "model-Q4_K_M.gguf")
    """

    def __init__(
        self,
        host: str | None = None,
        *,
        on_progress: Callable[[DeploymentProgress], None] = lambda progress: None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """`host` as OLLAMA_HOST has it, which is what counts where none is given."""
        self._wire = wire_of(host, environment)
        self._on_progress = on_progress

    @property
    def url(self) -> str:
        """Without secrets."""
        return self._wire.url

    @property
    def has_key(self) -> bool:
        """Whether a password or a key is sent along."""
        return bool(self._wire.headers)

    def version(self) -> str:
        """Of the server.

        Raises:
            ModelBusy: Nobody answers.
            ModelRefused: It is too old, or no Ollama.
        """
        with self._errors_as_sentences("asking for its version"):
            try:
                answer = self._wire.call("GET", "/api/version")
            except RequestRefused as error:
                if error.status in (401, 403):
                    raise
                answer = None
        version = str(answer.get("version", "")) if isinstance(answer, dict) else ""
        if not version:
            raise ModelRefused(f"what answers at {self.url} is no Ollama: name another with --host, or OLLAMA_HOST")
        numbers = tuple(int(part) for part in re.findall(r"\d+", version.partition("-")[0])[:3])
        # Whoever builds it from its source has 0.0.0.
        if any(numbers) and numbers < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            raise ModelRefused(f"the Ollama at {self.url} is {version}, and {oldest} or newer is needed: update it")
        return version

    def prepare(
        self,
        name: str,
        gguf: str | Path,
        *,
        profile: OllamaHostingProfile | None = None,
        system: str = "",
        licence: str = "",
        parameters: Mapping[str, Value | tuple[str, ...]] | None = None,
    ) -> Deployment:
        """What `create_model` would send. Nothing is sent, and no server need be there.

        Raises:
            InputError: Ollama takes no such name, or the file is no GGUF.
        """
        path = Path(gguf)
        header = read_header(path)
        profile = profile or self.profile(header)
        template, stop, notes = _template(header)
        values = {**profile.parameters, **({"stop": stop} if stop else {}), **(parameters or {})}
        modelfile = Modelfile(
            weights=path.name, template=template, system=system, licence=licence or header.licence, parameters=values
        )
        return Deployment(
            name=check_name(name),
            url=self.url,
            gguf=path,
            size=header.size,
            digest=sha256(path),
            modelfile=modelfile,
            profile=profile,
            notes=notes,
        )

    def create_model(
        self,
        name: str,
        gguf: str | Path,
        *,
        profile: OllamaHostingProfile | None = None,
        system: str = "",
        licence: str = "",
        parameters: Mapping[str, Value | tuple[str, ...]] | None = None,
    ) -> Deployed:
        """Make the model, or replace the one of that name, and ask it something. The Modelfile is left beside the weights.

        Weights that the server has are not sent again, so a call that broke off goes on where it can.

        Raises:
            InputError: Ollama takes no such name, or the file is no GGUF.
            ModelBusy: Nobody answers, or the connection broke.
            ModelRefused: The server does not take it.
            ModelError: The model was made, and does not answer.
        """
        deployment = self.prepare(name, gguf, profile=profile, system=system, licence=licence, parameters=parameters)
        return self.carry_out(deployment)

    def carry_out(self, deployment: Deployment) -> Deployed:
        """What `plan` said. Raises like `create_model`."""
        version = self.version()
        written = _write_modelfile(deployment)
        uploaded = self._upload(deployment)
        with self._errors_as_sentences(f"making {deployment.name}", deployment):
            for line in self._wire.lines("POST", "/api/create", deployment.request, timeout=PATIENCE):
                if "error" in line:
                    raise RequestRefused(int(line.get("status") or 200), str(line["error"]))
                self._on_progress(_progress(line))
        self._on_progress(DeploymentProgress(status="asking it"))
        started = time.perf_counter()
        reply, tokens = self._first_reply(deployment.name)
        return Deployed(
            deployment=deployment,
            version=version,
            uploaded=uploaded,
            modelfile=written,
            prompt=SMOKE,
            reply=reply,
            tokens=tokens,
            seconds=time.perf_counter() - started,
        )

    def chat(self, name: str, prompt: str, *, tokens: int = SMOKE_TOKENS) -> str:
        """What a model says, greedily, in at most so many tokens. Raises like `version`."""
        with self._errors_as_sentences(f"asking {name}"):
            return _reply_and_tokens(
                self._wire.call("POST", "/api/chat", _chat_request(name, prompt, tokens), timeout=PATIENCE)
            )[0]

    def list(self) -> list[Installed]:
        """The models that the server has. Raises like `version`."""
        with self._errors_as_sentences("listing its models"):
            answer = self._wire.call("GET", "/api/tags")
        models = answer.get("models") if isinstance(answer, dict) else None
        return [
            Installed(
                name=str(model.get("name") or model.get("model")),
                size=model.get("size"),
                digest=str(model.get("digest", "")),
                modified_at=str(model.get("modified_at", "")),
            )
            for model in models or ()
        ]

    def keep_loaded(self, name: str, seconds: float) -> None:
        """Have a model in memory for so long from now on, whoever asks it; it is loaded where it is not.

        Raises:
            ModelBusy: Nobody answers.
            ModelRefused: There is none of that name.
        """
        with self._errors_as_sentences(f"keeping {name} loaded"):
            self._wire.call("POST", "/api/generate", {"model": name, "keep_alive": f"{seconds:.0f}s"}, timeout=PATIENCE)

    def delete(self, name: str) -> None:
        """Take a model off the server.

        Raises:
            ModelRefused: There is none of that name.
        """
        with self._errors_as_sentences(f"deleting {name}"):
            self._wire.call("DELETE", "/api/delete", {"model": name})

    def profile(self, model: Header, *, context: int | None = None, parallel: int | None = None) -> OllamaHostingProfile:
        """What follows from this machine; of another nothing is known, and it must decide itself.

        Raises:
            InputError: This machine's memory does not hold the model.
        """
        if is_loopback(self._wire.host):
            return OllamaHostingProfile.derive(detect_hardware(), model, context=context, parallel=parallel)
        num_ctx = min(context or CONTEXT, model.context_length or context or CONTEXT)
        return OllamaHostingProfile(num_thread=None, num_ctx=num_ctx, num_parallel=parallel or 1)

    def _upload(self, deployment: Deployment) -> bool:
        """Whether the weights had to be sent."""
        path = f"/api/blobs/sha256:{deployment.digest}"
        with self._errors_as_sentences(f"sending {deployment.gguf.name}", deployment):
            try:
                self._wire.call("HEAD", path)
            except RequestRefused as error:
                if error.status != 404:
                    raise
            else:
                self._on_progress(
                    DeploymentProgress(status="the weights are there already", completed=deployment.size, total=deployment.size)
                )
                return False

            def sent(count: int) -> None:
                self._on_progress(DeploymentProgress(status="sending the weights", completed=count, total=deployment.size))

            self._wire.send(path, deployment.gguf, sent, timeout=PATIENCE)
        return True

    def _first_reply(self, name: str) -> tuple[str, int | None]:
        try:
            answer = self._wire.call("POST", "/api/chat", _chat_request(name, SMOKE, SMOKE_TOKENS), timeout=PATIENCE)
        except (RequestRefused, ModelServerUnreachable) as error:
            raise ModelError(
                f"{name} was made at {self.url}, and does not answer ({error}); its server's log says more, as does `ollama ps`"
            ) from None
        return _reply_and_tokens(answer)

    @contextmanager
    def _errors_as_sentences(self, doing: str, deployment: Deployment | None = None) -> Iterator[None]:
        """What goes wrong with the server, as one sentence."""
        try:
            yield
        except ModelServerUnreachable as error:
            raise ModelBusy(
                f"the Ollama at {self.url} could not be reached while {doing} ({error}): "
                "start it with `ollama serve`, or name another with --host or OLLAMA_HOST"
            ) from None
        except RequestRefused as error:
            raise ModelRefused(f"the Ollama at {self.url} refused {doing}: {_with_advice(error, deployment)}") from None


def _template(header: Header) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The chat template for Ollama, what ends a turn, and what is not as it should be."""
    if not header.chat_template:
        return "", (), (f"{header.path.name} has no chat template: Ollama will send the model the bare words",)
    try:
        from journeyman.optimizers.weights.gguf.tokenizer import translate
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is missing: pip install 'journeyman[gguf]'") from error
    translated = translate(header.chat_template, bos="" if header.adds_bos else header.token("bos"), eos=header.token("eos"))
    if translated is None:
        note = "the chat template is of a shape that could not be carried over; Ollama takes it only if it knows it by heart"
        return "", (), (note,)
    return translated.text, translated.stop, translated.notes


def _write_modelfile(deployment: Deployment) -> Path:
    """The Modelfile beside the weights: whole, or not at all."""
    path = deployment.gguf.with_name(f"{deployment.gguf.stem}.Modelfile")
    try:
        write_text(path, deployment.modelfile.text)
    except InputError as error:
        raise InputError(f"{error}; copy the GGUF file to a folder of your own") from None
    return path


def _chat_request(name: str, prompt: str, tokens: int) -> dict[str, Any]:
    options = {"num_predict": tokens, "temperature": 0}
    return {"model": name, "messages": [{"role": "user", "content": prompt}], "stream": False, "options": options}


def _reply_and_tokens(answer: Any) -> tuple[str, int | None]:
    """The words of an answer, and how many tokens they are."""
    message = answer.get("message") if isinstance(answer, dict) else None
    if not isinstance(message, dict):
        raise ModelError("Ollama's answer has no message in it: is something else between?")
    tokens = answer.get("eval_count")
    return str(message.get("content", "")), tokens if isinstance(tokens, int) else None


def _progress(line: Mapping[str, Any]) -> DeploymentProgress:
    return DeploymentProgress(status=str(line.get("status", "")), completed=line.get("completed"), total=line.get("total"))


def _with_advice(error: RequestRefused, deployment: Deployment | None) -> str:
    """What the server said, and what to do about it."""
    message = error.said or f"status {error.status}"
    if "no space left" in message.casefold() or error.status == 507:
        needed = f"{deployment.size / 1e9:.2f} GB are needed" if deployment else "make room"
        return f"it has no space left ({needed}; OLLAMA_MODELS says where it keeps models)"
    advice = {
        401: "set OLLAMA_API_KEY, or put name:password@ before the host",
        403: "it does not allow this from here; see OLLAMA_ORIGINS",
        413: "something between takes no files of this size; ask Ollama itself",
    }.get(error.status)
    if "digest mismatch" in message:
        advice = "the file changed while it was sent; try again"
    return f"{message}; {advice}" if advice else message
