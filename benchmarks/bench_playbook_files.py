"""How long it takes to save and load playbooks, beside what the JSON alone costs in the same run.

    python benchmarks/bench_playbook_files.py [--bullets 1000 10000] [--json]

The budget: 0.3 s each for 10,000 bullets. Times are CPU seconds, the least of several; the wait for the disk is not in them.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from journeyman.core.playbook import Bullet, Playbook, Provenance
from journeyman.optimizers.playbook import files, formats


def made(count: int) -> Playbook:
    """Bullets as a run leaves them: votes, dates, and the tasks that they come from."""
    return Playbook(
        bullets=tuple(
            Bullet(
                id=f"b-{number:012x}",
                content=f"Write the date of order {number} as year-month-day, and the amount in cents, before you send it.",
                domain=f"shop-{number % 6}",
                shown=number % 50,
                cited=number % 30,
                helpful=number % 20,
                harmful=number % 3,
                provenance=Provenance(run="oslo-1", tasks=(f"t-{number}", f"t-{number + 1}"), model="embedded:base"),
                created_at="2026-01-01T00:00:00+00:00",
                updated_at="2026-01-02T00:00:00+00:00",
            )
            for number in range(count)
        ),
        batches=frozenset(f"oslo-1/{number}" for number in range(count // 10)),
    )


def least(work: Callable[[], object], times: int = 5) -> float:
    """CPU seconds of the fastest try."""
    found = []
    for _ in range(times):
        started = time.process_time()
        work()
        found.append(time.process_time() - started)
    return min(found)


def measure(count: int, folder: Path) -> dict[str, float | int]:
    playbook, path = made(count), folder / "playbook.json"
    files.save(playbook, path)
    text = path.read_text(encoding="utf-8")
    data = json.loads(text)
    ace = formats.write(playbook, "ace").text
    return {
        "bullets": count,
        "megabytes": round(len(text.encode()) / 1e6, 2),
        "save": round(least(lambda: files.save(playbook, path)), 4),
        "load": round(least(lambda: files.load(path)), 4),
        "json_dumps": round(least(lambda: json.dumps(data, indent=2, ensure_ascii=False)), 4),
        "json_loads": round(least(lambda: json.loads(text)), 4),
        "ace_read": round(least(lambda: formats.read(ace, "ace")), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bullets", type=int, nargs="+", default=[1_000, 10_000, 30_000])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(count, Path(folder)) for count in options.bullets]
    if options.json:
        print(json.dumps({"rows": rows}))
        return
    print("  ".join(f"{name:>10}" for name in rows[0]))
    for row in rows:
        print("  ".join(f"{value:>10}" for value in row.values()))


if __name__ == "__main__":
    main()
