"""A real foreign agent on tasks of a repository: mini-swe-agent behind the walls, its model behind a real gateway.

    python -m benchmarks.foreign_agent --tasks tasks.jsonl --environments .journeyman/environments
    python -m benchmarks.foreign_agent --tasks tasks.jsonl --count 10 --right 7 --json

The model is a script that reads the task out of what the agent sends. For some tasks it answers with commands that leave what
is right, for the others with commands that change something else. So it is known before which attempts must pass; seen is
whether exactly these do, and whether all of what the agent did arrives in the gateway's store. pip installs the agent once.
"""

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from journeyman.core.format import counted
from journeyman.stores import open_store
from journeyman.tasks import repository
from journeyman.tasks.repository import RepositoryTask
from tests.support.llm_server import Answer, completion, serving

PACKAGE = "mini-swe-agent==2.4.6"
COMMAND = (
    "cmd:env MSWEA_CONFIGURED=1 MSWEA_COST_TRACKING=ignore_errors LITELLM_LOCAL_MODEL_COST_MAP=True "
    "mini -y --exit-immediately -m openai/scripted -t {task}"
)
"""Its price list is not fetched: there is no network, and it would try again for seconds."""
DONE = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


def commands(task: RepositoryTask, *, right: bool) -> Iterator[str]:
    """What the model has the agent do."""
    yield "ls && python -m pytest -q 2>&1 | tail -3"
    for path, text in task.reference.items():
        yield f"cat > {path} <<'THE_END'\n{text}THE_END\n" if right else f"echo '# nothing was found' >> {path}"
    yield DONE


def model(tasks: Sequence[RepositoryTask], right: set[str]) -> Any:
    """A script: the next command for the task that the conversation speaks of."""

    numbers = count()

    def answer(body: Mapping[str, Any]) -> Answer:
        said = json.dumps(body["messages"], ensure_ascii=False)
        spoken = [task for task in tasks if json.dumps(task.statement, ensure_ascii=False)[1:-1] in said]
        before = sum(message["role"] == "assistant" for message in body["messages"])
        script = list(commands(spoken[0], right=spoken[0].id in right)) if spoken else [DONE]
        call = {"name": "bash", "arguments": json.dumps({"command": script[min(before, len(script) - 1)]})}
        message = {
            "role": "assistant",
            "content": "Next.",
            "tool_calls": [{"id": f"c{before}", "type": "function", "function": call}],
        }
        return completion(
            None, id=f"c-{next(numbers)}", choices=[{"index": 0, "message": message, "finish_reason": "tool_calls"}]
        )

    return answer


@contextmanager
def gateway(upstream: str, folder: Path) -> Iterator[str]:
    """`journeyman serve` in front of it; its address."""
    command = [sys.executable, "-m", "journeyman", "serve", "--port", "0", "--upstream", upstream, "--no-pages", "--json"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield str(json.loads(process.stdout.readline())["url"])
        finally:
            process.terminate()
            process.wait(60)


def different(tasks: Sequence[RepositoryTask], most: int) -> list[RepositoryTask]:
    """Tasks that a model can tell apart by what is asked."""
    return list({task.statement: task for task in tasks}.values())[:most]


def measured(options: argparse.Namespace) -> dict[str, Any]:
    tasks = different(repository.read(options.tasks), options.count)
    right = {task.id for task in tasks[: options.right]}
    with tempfile.TemporaryDirectory() as name, serving() as upstream:
        folder = Path(name)
        repository.write(folder / "tasks.jsonl", tasks)
        upstream.default = model(tasks, right)
        with gateway(upstream.url, folder) as url:
            command = [sys.executable, "-m", "journeyman", "evaluate", "agent", "--tasks", "tasks.jsonl", "--agent", COMMAND]
            command += ["--agent-package", PACKAGE, "--base-url", f"{url}/v1", "--environments", str(options.environments)]
            command += ["--min-tasks", "1", "--min-clusters", "2", "--json"]
            began = time.monotonic()
            done = subprocess.run(
                command,
                cwd=folder,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "OPENAI_API_KEY": "sk-real-key-of-the-host"},
            )
            seconds = time.monotonic() - began
        if done.returncode > 1:
            raise SystemExit("the evaluation could not be made")
        report = json.loads(done.stdout.splitlines()[-1])
        return {**_found(folder, tasks, right, report), "calls": len(upstream.bodies), "seconds": round(seconds, 1)}


def _found(folder: Path, tasks: Sequence[RepositoryTask], right: set[str], report: Mapping[str, Any]) -> dict[str, Any]:
    with open_store(str(folder / ".journeyman/journeyman.db"), make=False) as store:
        attempts = [each for each in store.attempts(run_id=report["run"]) if "/candidate/" in each.id]
        verdicts = {each.trace.task_id: each.score.total for each in attempts}
    # Read where they lie: what tells nothing that the attempt's own trace does not tell is listed nowhere.
    with closing(sqlite3.connect(folder / ".journeyman/journeyman.db")) as database:
        wanted = "select count(distinct task_id), sum(model_calls) from traces where source = 'gateway'"
        traces, calls = database.execute(wanted).fetchone()
    return {
        "tasks": len(tasks),
        "right": sum(verdicts.get(id) == 1.0 for id in right),
        "wrong": sum(verdicts.get(task.id) == 0.0 for task in tasks if task.id not in right),
        "traces": traces,
        "recorded_calls": calls,
        "attempted_calls": sum(len(each.trace.calls) for each in attempts),
        "reason": report["reason"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=Path, required=True)
    parser.add_argument("--environments", type=Path, default=Path(".journeyman/environments"))
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--right", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    found = measured(parser.parse_args())
    sys.stdout.write(f"{json.dumps(found)}\n")
    sys.stdout.write(
        f"{counted(found['tasks'], 'task')}: {found['right']} right, {found['wrong']} wrong, as the script has it\n"
    )


if __name__ == "__main__":
    main()
