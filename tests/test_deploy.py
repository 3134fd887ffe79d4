"""What lies in deploy/ is what the programs that read it take. None of it is run here."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from journeyman.cli import root

DEPLOY = Path(__file__).parents[1] / "deploy"
KUBERNETES = "1.31"
PLANNED = ("learn", "start", "--foreground")
"""A command that may not be there yet."""
UNITS = sorted(path.name for path in (DEPLOY / "systemd").glob("*.service"))
MANIFESTS = sorted(path.name for path in (DEPLOY / "kubernetes").glob("*.yaml"))


def documents() -> Iterator[dict[str, Any]]:
    for name in MANIFESTS:
        yield from yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text())


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.service
def test_systemd_takes_each_unit(name: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    text = (DEPLOY / "systemd" / name).read_text()
    # Only that the program is not installed there is looked past.
    at = tmp_path / name.replace("@", "@4001")
    at.write_text(text.replace("/usr/local/bin/journeyman", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(at)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, [line for line in done.stderr.splitlines() if name.partition("@")[0] in line]) == (0, [])


@pytest.mark.parametrize("name", MANIFESTS)
def test_each_manifest_keeps_to_the_schema_of_its_kind(name: str) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    found = list(yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text()))
    assert found
    for document in found:
        validate.validate(document, KUBERNETES, strict=True)


def test_a_misspelt_field_of_a_manifest_is_seen() -> None:
    validate = pytest.importorskip("kubernetes_validate")
    document = next(each for each in documents() if each["kind"] == "Deployment")
    document["spec"]["replica"] = 3
    with pytest.raises(validate.ValidationError):
        validate.validate(document, KUBERNETES, strict=True)


def commands() -> Iterator[list[str]]:
    """Each command that a file of deploy/ starts."""
    for name in UNITS:
        line = re.search(r"^ExecStart=/usr/local/bin/journeyman (.*)$", (DEPLOY / "systemd" / name).read_text(), re.MULTILINE)
        assert line is not None, name
        yield line[1].split()
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    yield from (service["command"] for service in compose["services"].values() if "command" in service)
    for document in documents():
        if document["kind"] == "Deployment":
            yield from (container["args"] for container in document["spec"]["template"]["spec"]["containers"])


def test_each_command_that_is_started_is_one_with_these_options() -> None:
    for words in commands():
        if tuple(words) == PLANNED and "learn" not in root.list_commands(None):  # type: ignore[arg-type]
            continue
        names = [word for word in words if re.fullmatch(r"[a-z]+", word)]
        names = names[:2] if names[0] in ("worker", "learn") else names[:1]
        said = CliRunner().invoke(root, [*names, "--help"])
        assert said.exit_code == 0, words
        for option in (word for word in words if word.startswith("--")):
            assert option in said.output, (option, words)


def test_compose_starts_two_gateways_one_monitor_one_learner_and_workers_on_one_database() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = compose["services"]
    started = [" ".join(service.get("command", [])).split(" ")[0] for service in services.values()]
    assert sorted(started) == ["", "learn", "monitor", "serve", "serve", "worker"]
    allowed = {"image", "build", "restart", "read_only", "cap_drop", "security_opt", "tmpfs", "volumes", "environment"}
    allowed |= {"depends_on", "command", "ports", "healthcheck", "deploy"}
    for name, service in services.items():
        assert set(service) <= allowed, name
        for volume in service["volumes"]:
            assert volume.partition(":")[0] in compose["volumes"], name
        for other in service.get("depends_on", ()):
            assert other in services, name
        if name != "postgres":
            assert service["environment"]["JOURNEYMAN_STORE"].startswith("postgresql://"), name


def test_no_password_and_no_key_lies_in_a_file() -> None:
    for path in DEPLOY.rglob("*"):
        if path.is_file():
            text = path.read_text()
            assert not re.search(r"(?i)(password|token|key|secret)\s*[:=]\s*['\"]?[A-Za-z0-9+/]{12,}", text), path
            assert not re.search(r"postgresql://[^/\s]*:[^/\s@]+@", text), path


def test_nothing_in_the_image_runs_as_root() -> None:
    last = [line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if line.startswith("USER ")][-1]
    assert last == "USER 10001"
