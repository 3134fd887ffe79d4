"""What `journeyman doctor` says of sandboxes: each is started, and tests itself."""

import asyncio
import shutil
from collections.abc import Iterator
from importlib.util import find_spec

from journeyman.cli._health import Check
from journeyman.errors import SandboxError
from journeyman.sandbox import bubblewrap, load
from journeyman.sandbox.base import Level
from journeyman.sandbox.languages import LANGUAGES, Language

GROUP = "sandbox"
MENDS = {
    "memory_group": "a control group that may be shared out: systemd-run --user --scope -p Delegate=yes journeyman …",
    "process_group": "a control group that may be shared out: systemd-run --user --scope -p Delegate=yes journeyman …",
    "no_capabilities": "a Python that every user may read: one below /usr or /opt instead of root's home",
    "no_new_privileges": "a kernel of 3.5 or newer",
    "seccomp": "a kernel with CONFIG_SECCOMP_FILTER, on x86_64 or aarch64",
    "disk_limit": "bubblewrap, which gives each run a file system of its own",
    "inode_limit": "bubblewrap, which gives each run a file system of its own",
    "hidden_names": "bubblewrap, which shows a run only what it may read",
    "own_tmp": "bubblewrap, which gives each run a /tmp of its own",
    "limits_at_once": "bubblewrap, whose limits on disk and inodes refuse at once",
}
"""What would give a sandbox a wall that it lacks here."""


def examine() -> Iterator[Check]:
    """The sandbox that works here, how strong it is, and what would make it stronger."""
    found: dict[str, Level | str] = {name: _level(name) for name in ("bubblewrap", "landlock")}
    installed = bubblewrap.installed()
    for name, level in found.items():
        yield _check(name, level, installed=installed or name != "bubblewrap")
    working = next(((name, level) for name, level in found.items() if isinstance(level, Level)), None)
    if working is None:
        mend = "see above; or the code service of another machine: --ptc-url http://…"
        yield Check(group=GROUP, name="used", state="missing", detail="code that agents write cannot be run here", mend=mend)
        return
    name, level = working
    if installed:
        yield Check(group=GROUP, name="used", state="ok", detail=name if name == "bubblewrap" else f"{name}, the second choice")
    else:
        # What one command brings is not fallen back from.
        yield Check(
            group=GROUP, name="used", state="missing", detail="none", mend="install bubblewrap, or say --sandbox landlock"
        )
    for wall in level.lacks:
        yield Check(group=GROUP, name=wall, state="no", detail=f"not to be had by {name} here", mend=MENDS.get(wall, ""))
    yield _languages()


def _check(name: str, level: Level | str, *, installed: bool) -> Check:
    if isinstance(level, str):
        return Check(group=GROUP, name=name, state="broken" if installed else "missing", detail=level)
    return Check(group=GROUP, name=name, state="ok", detail=f"{len(level.holds)} walls hold: {', '.join(level.holds)}")


def _level(name: str) -> Level | str:
    """What it measured when it was started, or why it did not start and what to do."""

    async def started() -> Level:
        box = load(name)
        try:
            await box.start()
            return box.level
        finally:
            await box.close()

    try:
        return asyncio.run(started())
    except SandboxError as error:
        return str(error)


def _languages() -> Check:
    there = [name for name, language in LANGUAGES.items() if _is_there(language)]
    return Check(group=GROUP, name="languages", state="ok", detail=", ".join(there))


def _is_there(language: Language) -> bool:
    if language.kind == "pytest":
        return find_spec("pytest") is not None
    return not language.commands or any(shutil.which(command[0]) for command in language.commands)
