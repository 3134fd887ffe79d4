"""How Journeyman was installed here, and so what to type for more of it.

The library writes its advice as for a package of an index, `pip install 'journeyman[serve]'`; `advised` makes of it what
is right for a clone, for the file of a wheel, for pipx and for uv.
"""

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

_ADVICE = re.compile(r"(?<!uv )pip install (?P<quote>'?)journeyman(?:\[(?P<extra>[\w,-]+)\])?(?P=quote)(?![\w'\[-]| @)")
_SOURCE = Path(__file__).parents[3]
"""The clone, where it is run from one."""


def advised(text: str) -> str:
    """What the library advises to install, as it is typed for this installation. Advice of this kind stays as it is."""
    return _ADVICE.sub(lambda found: installing(found["extra"]), text) if "pip install" in text else text


def installing(extra: str | None, direct_url: str | None = None, prefix: str = sys.prefix) -> str:
    """What to type for this installation: a clone stays one, and so does what pipx or uv look after.

    Args:
        extra: What is wanted beside the package; without one it is installed anew.
        direct_url: pip's note of where it came from (PEP 610), as JSON; empty where there is none.
        prefix: The environment.
    """
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    origin = json.loads(direct_url) if direct_url else _origin() if direct_url is None else {}
    place, parts = str(origin.get("url", "")), f"[{extra}]" if extra else ""
    path = Path(url2pathname(urlsplit(place).path)) if place.startswith("file:") else None
    if path is not None and origin.get("dir_info", {}).get("editable"):
        folder = "." if path == Path.cwd() else path
        return f"{_installer(prefix)} -e {shlex.quote(f'{folder}{parts}')}"
    what = f"journeyman{parts}"
    if path is not None:
        # Also where the file is gone: no index is known to have it, and whoever brings the file back can type this.
        what = f"{path}{parts}"
    elif vcs := origin.get("vcs_info"):
        what = f"journeyman{parts} @ {vcs.get('vcs', 'git')}+{place}@{vcs.get('commit_id', 'HEAD')}"
    again = "" if extra else "--force-reinstall "
    return f"{_installer(prefix)} {again}{shlex.quote(what)}"


def _origin() -> dict[str, Any]:
    """Where this installation came from, as PEP 610 says it; a clone that is run without being installed is one."""
    from importlib import metadata

    try:
        told = metadata.distribution("journeyman").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        cloned = (_SOURCE / "pyproject.toml").is_file()
        return {"url": _SOURCE.as_uri(), "dir_info": {"editable": True}} if cloned else {}
    found: dict[str, Any] = json.loads(told) if told else {}
    return found


def _installer(prefix: str) -> str:
    """The program that looks after an environment."""
    parts = Path(prefix).parts
    if "pipx" in parts:
        return "pipx install --force"
    if "uv" in parts and "tools" in parts:
        return "uv tool install --force"
    try:
        made = Path(prefix, "pyvenv.cfg").read_text(encoding="utf-8")
    except OSError:
        return "pip install"
    return "uv pip install" if re.search(r"^uv = ", made, re.MULTILINE) else "pip install"
