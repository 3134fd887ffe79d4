"""What ships with the package: five scenarios of the kind a small service is made of, and the template for one's own."""

import json
from pathlib import Path
from typing import Any, Literal

from journeyman.core.errors import TaskError
from journeyman.tasks.scenarios.read import DocumentNode, load, of_yaml
from journeyman.tasks.scenarios.scenario import Scenario

HERE = Path(__file__).parent
EXAMPLES = ("email_validator", "url_shortener", "webhook_delivery", "rate_limiter", "subscription_invoice")
"""From the simple to the harder one."""


def examples() -> tuple[Scenario, ...]:
    """The five built-in scenarios."""
    return tuple(scenario for name in EXAMPLES for scenario in load(HERE / f"{name}.yaml"))


def template(kind: Literal["yaml", "json"] = "yaml") -> str:
    """A file to begin one's own scenarios with."""
    text = (HERE / "template.yaml").read_text(encoding="utf-8")
    return text if kind == "yaml" else json.dumps(_plain(of_yaml(text)), indent=2, ensure_ascii=False) + "\n"


def _plain(node: DocumentNode) -> Any:
    if isinstance(node.value, dict):
        return {key: _plain(value) for key, value in node.value.items()}
    if isinstance(node.value, list):
        return [_plain(item) for item in node.value]
    if isinstance(node.value, int | float) and not isinstance(node.value, bool):
        raise TaskError("the template holds a number, and no field of a scenario is one")
    return node.value
