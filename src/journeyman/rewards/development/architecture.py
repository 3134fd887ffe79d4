"""Architecture: does what changed keep to a profile of sizes and shapes?

    compliance = mean over changed files of ½ · (share of the file's own measures that comply)
                                          + ½ · (share of the measures of its functions and classes that comply)

A measure is one number of one changed file, class or function (its lines, its parameters, …). The halves keep many tiny
functions from hiding a huge file. Only what changed is judged, and what was over its limit before and did not grow is not held
against the one who came later.

Soft by default: compliance is a share, and multiplies the reward for functionality (see `combine`), since few files of even
good code comply in everything. `Architecture(soft=False)` gives 1 when everything complies and 0 otherwise.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from journeyman.rewards.base import RewardResult
from journeyman.rewards.development.measures import Measure, forbidden, of_file, sources
from journeyman.rewards.development.profile import V2, Profile
from journeyman.rewards.development.work import Work, parsed, unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A measure over its limit."""

    where: str
    limit: str
    value: int | str
    allowed: int | str

    def __str__(self) -> str:
        return f"{self.where}: {self.limit} {self.value}, allowed {self.allowed}"


@dataclass(frozen=True, slots=True)
class Architecture:
    """How far the changed code keeps to a profile of sizes and shapes."""

    profile: Profile = V2
    soft: bool = True
    name: str = "architecture"

    def compute(self, work: Work) -> RewardResult:
        """Unknown when no Python file changed. A file that is no Python complies with nothing."""
        changed = work.changed
        if not changed:
            return unknown("no Python file changed")
        trees, faults = parsed(changed)
        known, _ = parsed({path: work.before[path] for path in changed if path in work.before})
        good, whole, violations = 0.0, 2.0 * len(faults), []
        for path, tree in trees.items():
            earlier, same = _earlier(path, work, tree, known[path]) if path in known else ({}, set())
            here = [measure for measure in of_file(path, changed[path], tree) if measure.unit not in same]
            bad = [*_over(here, self.profile, earlier), *_imports(path, tree, self.profile, known.get(path))]
            files, units = _shares(here, bad)
            good, whole = good + files + units, whole + 2.0
            violations += bad
        broken = [f"{path}: {fault}" for path, fault in faults.items()]
        score = good / whole if self.soft else float(not violations and not broken)
        return RewardResult(score=score, is_binary=not self.soft, details=self._details(violations, broken, len(changed)))

    def _details(self, violations: list[Violation], broken: list[str], files: int) -> dict[str, object]:
        most = self.profile.critical_file_lines
        critical = [
            str(violation)
            for violation in violations
            if violation.limit == "forbidden_imports"
            or (violation.limit == "file_lines" and most is not None and int(violation.value) > most)
        ]
        found = [*broken, *map(str, violations)]
        told = f"{len(found)} violations of {self.profile.name} in {files} changed files" + (f"; {found[0]}" if found else "")
        return {"evidence": told, "violations": found[:50], "critical": critical, "profile": self.profile.name}


_Earlier = dict[tuple[str, str], Measure]


def _earlier(path: str, work: Work, tree: ast.Module, before: ast.Module) -> tuple[_Earlier, set[str]]:
    """What was measured before, and which units are what they were."""
    measured = {(measure.limit, measure.unit): measure for measure in of_file(path, work.before[path], before)}
    old, new = sources(work.before[path], before), sources(work.after[path], tree)
    return measured, {unit for unit in old if new.get(unit) == old[unit]}


def _over(measures: list[Measure], profile: Profile, earlier: _Earlier) -> list[Violation]:
    found = []
    for measure in measures:
        allowed = getattr(profile, measure.limit)
        before = earlier.get((measure.limit, measure.unit))
        if allowed is not None and measure.value > max(allowed, before.value if before else 0):
            found.append(Violation(where=measure.where, limit=measure.limit, value=measure.value, allowed=allowed))
    return found


def _imports(path: str, tree: ast.Module, profile: Profile, before: ast.Module | None) -> list[Violation]:
    already = {name for _, name in forbidden(path, before, profile)} if before else set()
    return [
        Violation(where=where, limit="forbidden_imports", value=name, allowed="none")
        for where, name in forbidden(path, tree, profile)
        if name not in already
    ]


def _shares(measures: list[Measure], violations: list[Violation]) -> tuple[float, float]:
    """The share of a file's own measures that comply, its imports being one, and that of its functions' and classes'."""
    bad = {(violation.where, violation.limit) for violation in violations}
    of_files = [(measure.where, measure.limit) not in bad for measure in measures if not measure.unit]
    of_files.append(not any(violation.limit == "forbidden_imports" for violation in violations))
    of_units = [(measure.where, measure.limit) not in bad for measure in measures if measure.unit]
    return sum(of_files) / len(of_files), sum(of_units) / len(of_units) if of_units else 1.0


def complies(text: str, profile: Profile = V2) -> bool:
    """Whether a whole file keeps to a profile in everything. Not Python complies with nothing."""
    trees, _ = parsed({"file.py": text})
    if not trees:
        return False
    tree: Mapping[str, ast.Module] = trees
    measures = list(of_file("file.py", text, tree["file.py"]))
    return not _over(measures, profile, {}) and not _imports("file.py", tree["file.py"], profile, None)
