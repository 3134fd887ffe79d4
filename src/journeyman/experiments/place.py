"""Where a project lies, and where it keeps its store: told without the settings and what checks them, which take longer to load
than a command that only looks takes to look."""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from journeyman.core.errors import InputError
from journeyman.stores.urls import as_url, is_url

FILE = "journeyman.toml"
FOLDER = ".journeyman"
"""The project's folder, beside the file: store, artifacts and runs."""
STORE = f"{FOLDER}/journeyman.db"
"""The store, where nobody names another."""
PREFIX = "JOURNEYMAN_"
STORE_VARIABLE = "JOURNEYMAN_STORE"
"""The environment's word on `store.url`, so that a password need not stand in a file."""
USER_VARIABLE = "JOURNEYMAN_USER"
"""Who judges, where nobody is named."""
READ = frozenset(
    {
        STORE_VARIABLE,
        USER_VARIABLE,
        *(f"{PREFIX}{name}" for name in ("CHECKPOINTS", "DATA", "SANDBOX_TOKEN", "TRAINING_PARENT")),
    }
)
"""Variables that are no settings, and that some part of Journeyman reads."""
SettingPath = tuple[str, ...]
"""Of a setting, from the section on."""


def file_above(folder: Path) -> Path | None:
    """The nearest `journeyman.toml` of a folder and those above it."""
    return next((each / FILE for each in (folder, *folder.parents) if (each / FILE).is_file()), None)


def read(file: Path) -> tuple[str, dict[str, Any]]:
    """A file's text, and what it says.

    Raises:
        InputError: It cannot be read, or is not TOML.
    """
    try:
        text = file.read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{file} is not TOML: {error}") from error


def leaves(values: Mapping[str, Any], above: SettingPath = ()) -> Iterator[tuple[SettingPath, Any]]:
    """What tables say, each with its path; a table in which nothing stands is said, too."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*above, name))
        else:
            yield (*above, name), value


def line_of(text: str, path: SettingPath) -> int:
    """Where a setting stands; a parser of TOML does not tell. Else where its table does, or the first line."""
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line):
            table = header.group(1).replace('"', "").replace(" ", "")
        named = re.match(r"\s*([\w.\"' -]+?)\s*=", line)
        full = ".".join(part for part in (table, named.group(1) if named else "") if part)
        if (named or header) and full == ".".join(path):
            return number
    return line_of(text, path[:-1]) if path else 1


def store_at(url: str, root: Path) -> str:
    """The URL of a store as a project names it: paths start at the project."""
    if (path := re.match(r"sqlite:///(?=[^/?])", url)) is not None:
        return f"{path.group()}{root / url[path.end() :]}"
    return url if is_url(url) else as_url(root / url)


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePlace:
    """Where the store of a project is."""

    url: str
    """May hold a password: show it only `redacted`."""
    origin: str | None
    """Where that was said: a file with its line, or a variable; `None` for the default."""


def store_place() -> StorePlace | None:
    """The store of the working folder's project; `None` where more is set than that, all of which has to be checked first:
    `settings.load` does.

    Raises:
        InputError: The file cannot be read.
    """
    here = Path.cwd().resolve()
    file = file_above(here)
    text, said = read(file) if file else ("", {})
    paths, url = dict(leaves(said)), os.environ.get(STORE_VARIABLE)
    if any(name.startswith(PREFIX) and name not in READ for name in os.environ) or paths.keys() - {("store", "url")}:
        return None
    root, named = file.parent if file else here, paths.get(("store", "url"), STORE)
    if not isinstance(named, str):
        return None
    origin = STORE_VARIABLE if url else f"{file}:{line_of(text, ('store', 'url'))}" if paths else None
    return StorePlace(url=store_at(url or named, root), origin=origin)
