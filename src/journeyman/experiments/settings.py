"""The settings of a project: `journeyman.toml`, found from the working folder upwards, and the environment.

Read once, by a face of the program, and handed on as values. Every setting has a default, so there need not be a file.
"""

import getpass
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from journeyman import models
from journeyman.core.errors import InputError, ModelError
from journeyman.io.http_server import is_loopback
from journeyman.stores.urls import as_url, is_url

# What `journeyman.toml` says of the gateway: where it listens, and which servers stand behind it.

Api = Literal["openai", "anthropic"]
OFFICIAL: dict[Api, str] = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}
"""The servers that are meant when none is named."""
_OWNERS = {"OPENAI_API_KEY": "api.openai.com", "ANTHROPIC_API_KEY": "api.anthropic.com"}
"""Variables that hold a key for one server, whatever else the file says."""

_UPSTREAMS_STRICT = ConfigDict(extra="forbid", strict=True)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Variable = Annotated[str, Field(pattern=r"^([A-Za-z_]\w*)?$")]


def _address(url: str) -> str:
    """An address without credentials: they would stand in a file, and in what is shown."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port)
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or not url.isascii() or re.search(r"\s", url):
        raise ValueError("should be an address such as https://llm.example.org/v1")
    if parts.username is not None or parts.password is not None:
        raise ValueError("an address holds no credentials: put the key into a variable, and its name into key_env")
    return url.rstrip("/")


Address = Annotated[str, AfterValidator(_address)]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSettings:
    """A model server behind the gateway, `[upstreams.NAME]`."""

    base_url: Address
    """As a client of it would be given: with `/v1` for OpenAI's API."""
    apis: tuple[Api, ...] = ()
    """What it speaks: `openai`, `anthropic` or both. Empty for what its address says, else both."""
    models: tuple[str, ...] = ()
    """Which models it serves, as `gpt-*`. Empty for any."""
    key_env: Variable = ""
    """The variable whose value is its key, sent where the client sends none. Empty for none."""
    client_key: bool | None = None
    """Whether it is sent the client's own key. Unless this is said, only the API's own maker is, when it is asked first."""
    connect_seconds: Seconds = 10.0
    first_byte_seconds: Seconds = 600.0
    """Until an answer begins."""
    idle_seconds: Seconds = 300.0
    """Between two pieces of an answer."""
    total_seconds: Seconds = 3600.0
    retries: Annotated[int, Field(ge=0, le=10)] = 1
    """Asked again so often when it cannot be reached, is busy (429) or fails (5xx), as long as nothing of an answer was passed
    on."""
    breaker_failures: Annotated[int, Field(ge=0)] = 5
    """After so many failures in a row it is left alone; 0 for never."""
    breaker_seconds: Seconds = 15.0
    """For so long; then one request tries."""

    __pydantic_config__: ClassVar[ConfigDict] = _UPSTREAMS_STRICT


def _keeps_keys_home(upstream: UpstreamSettings) -> UpstreamSettings:
    host = urlsplit(upstream.base_url).hostname or ""
    owner = _OWNERS.get(upstream.key_env)
    if owner and host != owner and not is_loopback(host):
        # The file may have come with somebody's data.
        raise ValueError(
            f"sends {upstream.key_env}, the key of {owner}, to {host}: put that server's key into a variable of its own"
        )
    return upstream


def _named(upstreams: dict[str, UpstreamSettings]) -> dict[str, UpstreamSettings]:
    for name in upstreams:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name for an upstream: use letters, digits, - _ and .")
    return upstreams


Upstreams = Annotated[dict[str, Annotated[UpstreamSettings, AfterValidator(_keeps_keys_home)]], AfterValidator(_named)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """How `journeyman serve` serves."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 4000
    token_env: Variable = ""
    """The variable that holds the tokens of those who may come; needed for a host that others can reach."""
    order: tuple[str, ...] = ()
    """Upstreams in the order in which they are asked; those not named come after. Empty for the order of the file."""
    max_request_mb: Annotated[int, Field(ge=1, le=4096)] = 64
    """The largest body that is taken."""
    max_record_mb: Annotated[int, Field(ge=1, le=1024)] = 32
    """How much of one answer is kept. More flows, and the record says that it is cut."""
    drain_seconds: Seconds = 30.0
    """How long running answers may take to end when the server is told to stop."""

    __pydantic_config__: ClassVar[ConfigDict] = _UPSTREAMS_STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSettings:
    """What is kept of what is watched."""

    content: bool = True
    """Whether what was said is kept; else only shapes and numbers."""
    redact: tuple[str, ...] = ()
    """Regular expressions of what must not be kept, beside keys and tokens, which never are."""
    buffer_mb: Annotated[int, Field(ge=1, le=4096)] = 64
    """Memory for what waits while the store is slow."""
    spill_mb: Annotated[int, Field(ge=0, le=1_000_000)] = 512
    """Disk for what waits longer, in the project's folder. What finds no room there either is dropped, and counted."""

    __pydantic_config__: ClassVar[ConfigDict] = _UPSTREAMS_STRICT


FILE = "journeyman.toml"
FOLDER = ".journeyman"
"""The project's folder, beside the file: store, artifacts and runs."""
STORE_VARIABLE = "JOURNEYMAN_STORE"
"""The environment's word on `store.url`, so that a password need not stand in a file."""
USER_VARIABLE = "JOURNEYMAN_USER"
"""Who judges, where nobody is named."""

_STRICT = ConfigDict(extra="forbid", strict=True)
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]


def _without_server(name: str) -> str:
    """A key in the environment is the user's, and a file that came with somebody's data must not say where it goes."""
    try:
        parsed = models.parse(name)
    except ModelError:
        # Said by who asks for the model.
        return name
    if parsed.kind == "openai" and parsed.base_url and parsed.base_url.rstrip("/") != models.HOME:
        raise ValueError("a server in a file stands in models.base_url, and in models.key_env the variable of its key")
    return name


ModelText = Annotated[str, AfterValidator(_without_server)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Where things are kept. Relative paths start at the folder of the file."""

    url: str = field(default=f"{FOLDER}/journeyman.db", repr=False)
    """A path, `sqlite:///FILE`, `postgresql://USER@HOST/DATABASE`, or `memory:`."""
    artifacts: str = f"{FOLDER}/artifacts"
    """The folder of the files that are kept by digest."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Which models do the work, as after `--model`."""

    generator: ModelText = ""
    """What attempts the tasks; empty for the data set's own default."""
    reflector: ModelText = ""
    """What draws the lessons; empty for the generator."""
    base_url: str = ""
    """Another server for models that are named without one."""
    key_env: Annotated[str, Field(pattern=r"^([A-Za-z_]\w*)?$")] = ""
    """The variable whose value that server is sent as a key. Empty for none: OpenAI's own key goes nowhere else unasked."""
    embedder: str = "hashing"
    """What tells near duplicates apart: `hashing`, or `sentence` with the extra of that name."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaybookSettings:
    """How a playbook is learned and used."""

    token_budget: Count = 2000
    """Tokens of playbook in a prompt: all of it while it fits, else the best bullets for the task."""
    similarity_threshold: Share = 0.8
    """Cosine from which two insights say the same."""
    batch_size: Count = 10
    """Attempts that are merged together."""
    concurrency: Count = 10
    """Calls in flight at once, before a busy server makes it fewer."""
    checkpoint_interval: Count = 50
    """Examples between two checkpoints."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSettings:
    """What a candidate must show on held-out tasks."""

    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """How often something that is no better may pass, over all looks at the same held-out tasks together."""
    least_gain: Annotated[float, Field(ge=-1, le=1)] = 0.0
    """The gain that even the low end of the interval must exceed."""
    least_tasks: Count = 30
    """Held-out tasks below which nothing passes."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that the file can say; a table for each part."""

    store: StoreSettings = StoreSettings()
    models: ModelSettings = ModelSettings()
    playbook: PlaybookSettings = PlaybookSettings()
    gate: GateSettings = GateSettings()
    serve: ServeSettings = field(default_factory=ServeSettings)
    upstreams: Upstreams = field(default_factory=dict)
    """The model servers behind `journeyman serve`, by name."""
    record: RecordSettings = field(default_factory=RecordSettings)

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The settings, and the folder that their paths start from."""

    root: Path
    settings: Settings = Settings()
    file: Path | None = None
    """Where the settings were read; `None` when all are defaults."""

    @property
    def folder(self) -> Path:
        return self.root / FOLDER

    @property
    def store_url(self) -> str:
        """For `stores.open_store`. May hold a password: show it only `redacted`."""
        url = self.settings.store.url
        if (path := re.match(r"sqlite:///(?=[^/?])", url)) is not None:
            return f"{path.group()}{self.root / url[path.end() :]}"
        return url if is_url(url) else as_url(self.root / url)

    @property
    def artifacts(self) -> Path:
        return self.root / self.settings.store.artifacts


_SETTINGS = TypeAdapter(Settings)


def load(start: Path | None = None, environment: Mapping[str, str] | None = None) -> Project:
    """The project that `start` (else the working folder) lies in: the nearest `journeyman.toml` upwards, else the defaults.

    Raises:
        InputError: The file cannot be read, or says what no setting is. All that is wrong is named at once.
    """
    here = (start or Path.cwd()).resolve()
    file = next((folder / FILE for folder in (here, *here.parents) if (folder / FILE).is_file()), None)
    settings = read(file) if file else Settings()
    if url := (os.environ if environment is None else environment).get(STORE_VARIABLE):
        settings = replace(settings, store=replace(settings.store, url=url))
    return Project(root=file.parent if file else here, settings=settings, file=file)


def person() -> str | None:
    """Whose word a label is that is given here: $JOURNEYMAN_USER, else who is logged in; `None` where neither is known."""
    try:
        return (os.environ.get(USER_VARIABLE) or getpass.getuser()).strip() or None
    except (OSError, KeyError, ImportError):
        return None


def read(file: Path) -> Settings:
    """The settings that a file gives."""
    try:
        text = file.read_text(encoding="utf-8")
        found = tomllib.loads(text)
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is not TOML: {error}") from error
    try:
        return _SETTINGS.validate_json(json.dumps(found, default=str))
    except ValidationError as error:
        wrong = [_sentence(file, text, tuple(map(str, each["loc"])), each["msg"], each["type"]) for each in error.errors()]
        raise InputError("; ".join(wrong)) from None


def _sentence(file: Path, text: str, path: tuple[str, ...], message: str, kind: str) -> str:
    where = f"{file}:{_line(text, path)}"
    name = ".".join(path)
    if kind != "unexpected_keyword_argument":
        said = message.replace("an object", "a table").removeprefix("Value error, ")
        return f"{where}: {name}: {said[:1].lower()}{said[1:]}"
    known = [each.name for each in fields(_owner(path[:-1]))]
    near = get_close_matches(path[-1], known, n=1, cutoff=0.0)
    return f"{where}: there is no setting {name}; did you mean {'.'.join((*path[:-1], near[0]))}?"


def _owner(path: tuple[str, ...]) -> Any:
    owner: Any = Settings()
    for name in path:
        # Whose table it is, is the user's to say: all upstreams have the same settings.
        owner = UpstreamSettings if owner == {} else getattr(owner, name)
    return owner if is_dataclass(owner) else Settings()


def _line(text: str, path: tuple[str, ...]) -> int:
    """Where a setting stands; a parser of TOML does not tell. Else where its table does, or the first line."""
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line):
            table = header.group(1).replace('"', "").replace(" ", "")
        named = re.match(r"\s*([\w.\"' -]+?)\s*=", line)
        full = ".".join(part for part in (table, named.group(1) if named else "") if part)
        if (named or header) and full == ".".join(path):
            return number
    return _line(text, path[:-1]) if path else 1
