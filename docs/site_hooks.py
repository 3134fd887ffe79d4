"""What the site has that no file below docs is: the pages of the project's root, and the Python reference, by `make site`."""

import os
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "readme.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "LOG.md": "log.md"}
"""Files of the root, and what they are called in the site."""
REFERENCE = "reference/python.md"
_HEAD = """# Python

All that `journeyman` offers to programs, each loaded when it is first used. Most need three calls and a class:
[train][journeyman.cli.notebook.train], [evaluate][journeyman.cli.notebook.evaluate],
[watch][journeyman.serving.ingest.in_process.watch] and [Playbook][journeyman.core.playbook.Playbook].
"""
_GROUPS = {
    "Learn and prove": ("cli.notebook", "core.playbook", "experiments.compare", "experiments.playbook"),
    "Watch and score": ("serving", "rewards", "tracing", "core.trace", "core.score"),
    "Words": ("core",),
    "Agents, plans and routes": ("agents", "compat", "experiments.planner", "optimizers.planner"),
    "Weights": ("experiments.weights", "optimizers.weights"),
    "Data and stores": ("stores", "tasks"),
}


def on_files(files: Files, config: Any) -> Files:
    """Add what is made."""
    made = {name: (ROOT / file).read_text(encoding="utf-8") for file, name in PAGES.items()}
    for name, content in {**made, REFERENCE: reference()}.items():
        files.append(File.generated(config, name, content=content))
    return files


def reference() -> str:
    """A page of every public name, in groups."""
    sys.path.insert(0, str(ROOT / "src"))
    import journeyman

    # A file of the name `registry` is a module, and its functions speak for themselves.
    homes = {name: home for home, names in journeyman._HOMES.items() for name in names if home != "core"}
    left, parts = dict(homes), [_HEAD]
    for title, rooms in _GROUPS.items():
        names = [name for name in sorted(left, key=str.casefold) if any(_is_in(left[name], room) for room in rooms)]
        parts += [f"## {title}", *(f"::: journeyman.{left.pop(name)}.{name}" for name in names)]
    if left:
        raise ValueError(f"no group of the reference has {', '.join(left)}")
    return "\n\n".join(parts) + "\n"


def _is_in(home: str, room: str) -> bool:
    return home == room or home.startswith(f"{room}.")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as they are in the repository, to where the site has what they name; what it has not is named without a link."""
    root = {name: file for file, name in PAGES.items()}
    uri = page.file.src_uri
    place = Path(root.get(uri, f"docs/{uri}")).parent
    return re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", lambda found: _link(found, place, Path(uri).parent), markdown)


def _link(found: "re.Match[str]", place: Path, below: Path) -> str:
    """
    Args:
        place: The folder of the page in the repository.
        below: The same in the site.
    """
    text, target = found.groups()
    path, hash, anchor = target.partition("#")
    if "://" in target or not path:
        return found[0]
    named = os.path.relpath(ROOT / place / path, ROOT)
    there = PAGES.get(named) or (named.removeprefix("docs/") if named.startswith("docs/") else "")
    return f"[{text}]({os.path.relpath(there, below)}{hash}{anchor})" if there else text
