"""A compliance profile: how large and how tangled code may be, in numbers that a team can set."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from journeyman.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The most of each thing that complies. `None` sets no limit. The defaults are the preset "V2"."""

    name: str = "V2"
    file_lines: int | None = 400
    critical_file_lines: int | None = 600
    """A file above this is a critical fault."""
    classes: int | None = 5
    """In one file, nested ones and enums included."""
    functions: int | None = 10
    """In one file, outside of classes and of other functions."""
    enums: int | None = 3
    """In one file."""
    function_lines: int | None = 30
    class_lines: int | None = 200
    parameters: int | None = 5
    """`self` and `cls` are not counted."""
    complexity: int | None = 10
    """Cyclomatic, of one function."""
    nesting: int | None = 3
    """Blocks within blocks within a function; `elif` is no deeper than `if`."""
    inheritance: int | None = 2
    """How many ancestors deep a class is, as far as its file shows. `object` is none."""
    forbidden_imports: tuple[str, ...] = ()
    """Modules that must not be imported, with all below them: `os.system` forbids just that."""


V2 = Profile()
PRESETS = {"V2": V2}
_LIMITS = tuple(each.name for each in fields(Profile) if each.name not in ("name", "forbidden_imports"))


def load(source: Path | str) -> Profile:
    """The preset of that name, or the profile in a TOML or JSON file. What the file does not name stays as in the preset "V2".

    A limit of `false` in TOML, or `null` in JSON, sets none.

    Raises:
        InputError: It is neither, or not a profile. Names every fault.
    """
    if str(source) in PRESETS:
        return PRESETS[str(source)]
    path = Path(source)
    data = _data(path)
    if not isinstance(data, dict):
        raise InputError(f"{path}: a profile is a table of limits, such as function_lines = 30")
    faults = [fault for name, value in data.items() if (fault := _fault(name, value))]
    if faults:
        raise InputError(f"{path} is not a compliance profile: {'; '.join(faults)}")
    values: dict[str, Any] = {name: None if value is False else value for name, value in data.items()}
    values["forbidden_imports"] = tuple(values.get("forbidden_imports", ()))
    return Profile(**{"name": path.stem, **values})


def _data(path: Path) -> Any:
    try:
        text = path.read_text("utf-8")
        return json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except FileNotFoundError:
        raise InputError(f"{path} is neither a file nor a preset; presets: {', '.join(PRESETS)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} could not be read: {error}") from None
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: {error}; a profile is TOML, or JSON in a file called .json") from None


def _fault(name: str, value: Any) -> str | None:
    if name == "name":
        return None if isinstance(value, str) else "name must be a text"
    if name == "forbidden_imports":
        fine = isinstance(value, list) and all(isinstance(each, str) and each for each in value)
        return None if fine else "forbidden_imports must be a list of module names"
    if name not in _LIMITS:
        near = get_close_matches(name, _LIMITS, 1)
        return f"no limit is called {name!r}" + (f", do you mean {near[0]!r}?" if near else f"; limits: {', '.join(_LIMITS)}")
    if value is None or value is False or (isinstance(value, int) and value is not True and value >= 0):
        return None
    return f"{name} must be a whole number from 0 on, or false for no limit, not {value!r}"


def as_json(profile: Profile) -> Mapping[str, Any]:
    """The profile as a JSON object that `load` reads."""
    return {each.name: getattr(profile, each.name) for each in fields(Profile)}
