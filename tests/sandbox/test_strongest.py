"""The strongest sandbox that works: what is forbidden is fallen back from, aloud; what is not installed is not."""

import asyncio
from pathlib import Path

import pytest

from journeyman import sandbox
from journeyman.core.errors import SandboxError
from journeyman.sandbox.base import Program
from journeyman.sandbox.supervised import missing

FORBIDDEN = "#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n"


@pytest.mark.service
@pytest.mark.skipif(missing() is not None, reason="this kernel has no Landlock")
async def test_runs_that_find_bubblewrap_forbidden_together_all_run_in_landlock_and_are_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "bwrap").write_text(FORBIDDEN)
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    box = sandbox.load()
    outcomes = await asyncio.gather(*(box.run(Program(code=f"print({number})")) for number in range(3)))
    await box.close()
    assert [(outcome.stdout, outcome.level.name) for outcome in outcomes] == [(f"{n}\n", "landlock") for n in range(3)]
    assert caplog.text.count("so landlock is used") == 1


async def test_what_is_only_not_installed_is_to_be_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match="bubblewrap is not installed"):
        await sandbox.load().run(Program(code="pass"))
