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
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from journeyman import models
from journeyman.errors import InputError, ModelError
from journeyman.stores.urls import as_url, is_url
from journeyman.upstreams import RecordSettings, ServeSettings, Upstreams, UpstreamSettings

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
