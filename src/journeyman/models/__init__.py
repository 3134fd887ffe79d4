"""Model clients by name: the simplest is `scripted`, the smallest real one `embedded`, all others speak over HTTP.

embedded  embedded:small            the model that ships with the package
local:FOLDER                        a model in this process, from a folder or by its Hugging Face id
local:FOLDER+ADAPTER                the same with learned weights on it; embedded:base+ADAPTER likewise
openai:gpt-5-mini                   key in OPENAI_API_KEY; a bare `gpt-5-mini` means the same
openai:MODEL@http://host:port/v1    any server that speaks chat completions
ollama:qwen3:4b                     Ollama on this machine
recorded:outputs.jsonl#COLUMN       replays what a model once said
scripted:TEXT                       always answers TEXT
MODULE:CLASS or MODULE:CLASS:TEXT   a client of your own, made without arguments, or of TEXT
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from journeyman.core import extension, registry
from journeyman.core.errors import JourneymanError, ModelError, ModelRefused
from journeyman.io.retry import RetryPolicy
from journeyman.models.base import USUAL_POLICY, Limited, Model

HOME = "https://api.openai.com/v1"
"""OpenAI's own server."""
KEY = "OPENAI_API_KEY"
"""The variable that holds the key for it, and for a server that the user names on the spot."""
OVER_HTTP = frozenset({"ollama", "openai"})
"""Kinds whose names may end in a server's URL, and whose clients take `timeout` and `max_retries`."""
_NEED_MORE = {
    "local": "a folder or a Hugging Face id, as in local:models/mine",
    "ollama": "a model, as in ollama:qwen3:4b",
    "openai": "a model, as in openai:gpt-5-mini",
    "recorded": "a file, as in recorded:outputs.jsonl",
}


_SIZES = frozenset({"tiny", "small", "base"})
"""In which the embedded model can be trained. Typed alone, none is meant for a model of OpenAI's."""
_SERVER = re.compile(
    r"@((?:localhost|(?:\d+\.){3}\d+|[\w-]+(?:\.[\w-]+)*\.[a-z]{2,})(?::\d+)?(?:/\S*)?|[\w-]+:\d+(?:/\S*)?)$", re.IGNORECASE
)
"""Behind a model's name, what can only be meant for a server, though it lacks its http://."""
_PROVIDERS = frozenset({
    "anthropic", "azure", "bedrock", "cerebras", "claude", "cohere", "deepseek", "fireworks", "gemini", "google", "groq",
    "huggingface", "litellm", "lmstudio", "mistral", "mistralai", "openrouter", "perplexity", "replicate", "together",
    "vertex_ai", "vertexai", "vllm", "xai",
})  # fmt: skip
"""Names of whom other libraries have clients for. Some are packages as well, which `anthropic:opus` does not mean to import."""

WEIGHTS = Path(__file__).parent / "embedded" / "weights"
"""Where the embedded model's sizes lie, a folder each. Here, as its client takes seconds to load."""


def embedded_sizes() -> tuple[str, ...]:
    """The sizes of the embedded model that are installed."""
    return tuple(sorted(path.parent.name for path in WEIGHTS.glob("*/config.json")))


def embedded_weights(size: str) -> Path:
    """The folder of a size of the embedded model.

    Raises:
        ModelRefused: There is no such size.
    """
    if (WEIGHTS / size / "config.json").is_file():
        return WEIGHTS / size
    raise ModelRefused(f"no embedded model {size!r}; there are: {', '.join(embedded_sizes()) or 'none installed'}")


def checked_address(url: str) -> str:
    """The address of a server, as it came.

    Raises:
        ModelRefused: It does not begin with http:// or https://, so that nobody can be asked there.
    """
    if not re.match(r"https?://[^/\s]", url):
        shown = url.rpartition("@")[2]
        raise ModelRefused(
            f"{shown!r} is no address of a server: write it with http:// or https://, as in http://{_host(shown)}"
        )
    return url


def _host(url: str) -> str:
    return url.rpartition("//")[2] or "localhost:8000/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPrice:
    """What a model of one's own costs, in US dollars for a million tokens."""

    input: float
    output: float
    cached: float | None = None
    """Of input that the server had kept from before; `None` for as any other."""


_own: dict[str, OwnPrice] = {}


def know_prices(prices: Mapping[str, OwnPrice]) -> None:
    """Let these hold in this process, before what any list says. By the model's name, as after `--model` or as its server says
    it."""
    _own.clear()
    _own.update(prices)


def own_price(provider: str, model: str) -> OwnPrice | None:
    """What the user says that a model costs; `None` where nothing is said. `provider` is an id, or a server's base URL."""
    for name, price in _own.items():
        if name == model:
            return price
        parsed = parse(name)
        if parsed.rest == model and (parsed.base_url or provider).rstrip("/") == provider.rstrip("/"):
            return price
    return None


def split_adapter(named: str) -> tuple[str, str]:
    """A model of this process and the folder of the adapter on it, empty when there is none: `base+runs/1/adapter`."""
    where, _, adapter = named.partition("+")
    return where, adapter


@dataclass(frozen=True, slots=True)
class ModelName:
    """What a user types after `--model`, taken apart."""

    kind: str
    rest: str = ""
    """The model, size or file."""
    base_url: str | None = None


def parse(name: str) -> ModelName:
    """Take a model's name apart. A bare name is an OpenAI model, as users of older systems type it."""
    before, *urls = re.split(r"@(?=https?://)", name.strip(), maxsplit=1)
    kind, colon, rest = before.partition(":")
    if not urls and (server := _SERVER.search(before)):
        checked_address(server[1])
    if registry.known("models", kind):
        pass
    elif not colon and kind in _SIZES:
        sizes = " or ".join(f"embedded:{size}" for size in embedded_sizes())
        raise ModelError(f"{kind!r} is a size of the embedded model, which is {sizes}; one of OpenAI's would be openai:{kind}")
    elif not colon and not get_close_matches(kind, registry.names("models"), cutoff=0.8):
        kind, rest = "openai", before
    elif kind.lower() in _PROVIDERS and not rest[:1].isupper():
        raise ModelError(_no_client(before, "a provider that speaks chat completions is openai:MODEL@URL, with its address"))
    else:
        kind, rest = _of_ones_own(before)
    if not rest and kind in _NEED_MORE:
        raise ModelError(f"the model {name!r} is not complete: {kind} needs {_NEED_MORE[kind]}")
    if urls and kind not in OVER_HTTP:
        raise ModelError(f"the model {name!r} names a server, and {kind} has none: leave out what follows the @")
    return ModelName(kind, rest, urls[0] if urls else None)


def _of_ones_own(text: str) -> tuple[str, str]:
    """`module:Class`, where there is such a class, and the text behind it."""
    named, rest = registry.taken_apart("models", text)
    if registry.can_be_loaded(named):
        try:
            registry.load("models", named)
        except JourneymanError as error:
            raise ModelError(f"{_no_client(text)}; {error}") from error
        return named, rest
    raise ModelError(_no_client(text))


def _no_client(text: str, hint: str = "") -> str:
    kind = text.partition(":")[0]
    hint = hint or registry.hint(text)[2:] or f"if it is the name of a model itself, write openai:{text} or ollama:{text}"
    return f"no model client {kind!r}; there are {', '.join(registry.names('models'))}, and your own as module:Class; {hint}"


def load(name: str, **options: object) -> Model:
    """The client of that name. `options` go to its class: `base_url`, `timeout` and `max_retries` for those over HTTP.

    `openai` also takes `key_env`, the environment variable whose value the server is sent as the key. Without it that is
    `OPENAI_API_KEY`, so a server that the user did not name needs it: empty, nothing is sent but to OpenAI itself.
    """
    parsed = parse(name)
    if parsed.base_url is not None:
        options = {**options, "base_url": parsed.base_url}
    client: Model = extension.make("models", parsed.kind, *([parsed.rest] if parsed.rest else []), **options)
    return client


def connect(name: str, concurrency: int = 10, *, patience: RetryPolicy = USUAL_POLICY, **options: object) -> Limited:
    """The client of that name, limited. Its own retries are off: they would hide from `Limited` that the server is busy."""
    if parse(name).kind in OVER_HTTP:
        options.setdefault("max_retries", 0)
    return Limited(load(name, **options), concurrency, patience=patience)
