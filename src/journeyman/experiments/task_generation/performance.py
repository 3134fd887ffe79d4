"""Code made slow by steps that change nothing of what it gives: what it was before is as fast as is asked."""

import ast
import random
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy

from journeyman.experiments.task_generation.base import Rejected, TaskDraft, TaskSource
from journeyman.experiments.task_generation.refactor import MOST_COVERING, reference_passes, rewritten
from journeyman.rewards.repository.behaviour import Target, behaviour
from journeyman.rewards.repository.instructions import SIZES, CountedCalls, cost
from journeyman.rewards.repository.suite import run_suite
from journeyman.rewards.repository.verdict import failing
from journeyman.sandbox.base import Sandbox
from journeyman.tasks.repository import Category, Checks, RepositoryTask, split_of

SLOWER = 2.0
"""Times the instructions of what it was, at the largest size; and the more the larger."""
CALLS = 2
_SECONDS = 60.0


class Performance:
    """A function that tests call, made slow where there is much."""

    category = Category.PERFORMANCE
    version = "1"

    def drafts(self, subject: TaskSource, chance: random.Random) -> Iterator[TaskDraft]:
        found = [
            (path, function, kind) for path, function in subject.functions() if "." not in function.name for kind in _SLOWER
        ]
        chance.shuffle(found)
        for path, function, kind in found:
            body = deepcopy(function.body)
            if not body or not _SLOWER[kind](body) or (slow := rewritten(subject.tree.text(path), function, body)) is None:
                continue
            yield TaskDraft(
                key=f"{path}:{function.name}:{kind}",
                source=f"{subject.tree.module_of(path)}:{function.name}",
                path=path,
                base={path: slow},
                reference={path: subject.tree.text(path)},
                lines=tuple(function.lines),
                told={"function": function.name, "module": subject.tree.module_of(path), "kind": kind},
            )

    async def task(self, draft: TaskDraft, subject: TaskSource, box: Sandbox) -> RepositoryTask | Rejected:
        tests = subject.covering(draft.path, draft.lines)[:MOST_COVERING]
        if not tests:
            return Rejected("no test comes by it")
        slow = subject.tree.changed(draft.base)
        if why := failing(await run_suite(box, slow, tests, seconds=_SECONDS, plugins=subject.plugins), tests):
            return Rejected("the tests do not pass where it is slow", why)
        target = Target(path=draft.path, function=draft.told["function"], tests=tests, wanted=0)
        workload = await _workload(draft, await _calls(subject, target, box), subject, box)
        if isinstance(workload, Rejected):
            return workload
        before, after = await cost(box, subject.tree, workload), await cost(box, slow, workload)
        if why := before.missing or before.broken or after.broken:
            return Rejected("it cannot be counted", why)
        shares = [mine / max(1, its) for mine, its in zip(after.instructions, before.instructions, strict=True)]
        if shares[-1] < SLOWER or shares[-1] <= shares[0]:
            return Rejected("it is not slow enough", ", ".join(f"{share:.2f}" for share in shares))
        measure = {
            "module": workload.module,
            "function": workload.function,
            "calls": list(workload.calls),
            "sizes": list(workload.sizes),
        }
        task = RepositoryTask(
            category=self.category,
            repository=subject.name,
            tree=subject.tree.digest,
            environment=subject.environment.digest,
            statement=_statement(subject, draft),
            base=draft.base,
            reference=draft.reference,
            checks=Checks(pass_to_pass=tests, measure=measure),
            level={
                "lines": float(len(draft.lines)),
                "files": 1.0,
                "covering": float(len(tests)),
                "slower": round(shares[-1], 1),
            },
            source=draft.source,
            made_by=f"performance {self.version} {draft.told['kind']}",
            license=subject.license,
            split=split_of(subject.name, draft.source),
        )
        return await reference_passes(task, subject, box)


async def _calls(subject: TaskSource, target: Target, box: Sandbox) -> list[object]:
    """Calls of the tests that hold something which there can be more of, the longest first."""
    found = (await behaviour(box, subject.tree, target, subject.plugins)).calls
    able = [call for call in found if any(kind in ("list", "tuple", "set", "dict", "iterator") and held for kind, held in call)]
    return sorted(able, key=lambda call: -len(str(call)))


async def _workload(draft: TaskDraft, calls: Sequence[object], subject: TaskSource, box: Sandbox) -> CountedCalls | Rejected:
    """Two calls that can be made with much, and give the same from slow code."""
    good = list[object]()
    for call in calls[:6]:
        one = CountedCalls(module=draft.told["module"], function=draft.told["function"], calls=(call,), sizes=(7, 50))
        fast = await cost(box, subject.tree, one, count=False)
        slow = await cost(box, subject.tree.changed(draft.base), one, count=False)
        if not fast.broken and fast.gave == slow.gave:
            good.append(call)
        if len(good) == CALLS:
            return CountedCalls(module=one.module, function=one.function, calls=tuple(good), sizes=SIZES)
    return Rejected("there are too few calls that can be made with much")


def _statement(subject: TaskSource, draft: TaskDraft) -> str:
    return (
        f"`{draft.told['function']}` of {subject.name} takes far too long where it is given much: what it takes grows faster "
        "than what it is given. Make it as fast as it can reasonably be. It must go on giving the same, and what the package "
        "offers keeps its names and parameters. Processor instructions are counted, with calls like those of the tests, but "
        "larger. The tests must go on passing; they are run with `python -m pytest`."
    )


def _nodes(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    for each in body:
        yield from ast.walk(each)


def _made_of(body: Sequence[ast.stmt], made: Callable[[ast.expr], bool]) -> set[str]:
    """Names that are only ever given such a value."""
    found, other = set[str](), set[str]()
    for node in _nodes(body):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            (found if made(node.value) else other).add(node.targets[0].id)
        elif isinstance(node, ast.FunctionDef | ast.Lambda):
            other |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return found - other


def _is_new_set(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value) == "set()"


def _set_as_list(body: list[ast.stmt]) -> bool:
    """What was looked up in a set is searched in a list."""
    names = _made_of(body, _is_new_set)
    for node in _nodes(body):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
            if node.attr != "add":
                return False
            node.attr = "append"
    for node in _nodes(body):
        if isinstance(node, ast.Assign) and _is_new_set(node.value):
            node.value = ast.List(elts=[], ctx=ast.Load())
    return bool(names)


def _list_anew(body: list[ast.stmt]) -> bool:
    """What was put behind a list makes a new one each time."""
    names, found = _made_of(body, lambda value: isinstance(value, ast.List) and not value.elts), False
    for node in _nodes(body):
        match node:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[item])) if (
                name in names
            ):
                call = ast.BinOp(ast.Name(name, ast.Load()), ast.Add(), ast.List([item], ast.Load()))
                _replace(body, node, ast.Assign(targets=[ast.Name(name, ast.Store())], value=call, lineno=0))
                found = True
    return found


def _mapping_anew(body: list[ast.stmt]) -> bool:
    """What was put into a mapping makes a new one each time."""
    names, found = _made_of(body, lambda value: isinstance(value, ast.Dict) and not value.keys), False
    for node in _nodes(body):
        match node:
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name), slice=key)], value=value) if name in names:
                made = ast.Dict(keys=[None, key], values=[ast.Name(name, ast.Load()), value])
                _replace(body, node, ast.Assign(targets=[ast.Name(name, ast.Store())], value=made, lineno=0))
                found = True
    return found


def _walked_by_place(body: list[ast.stmt]) -> bool:
    """What was walked through is copied for each of its items."""
    loops = [node for node in _nodes(body) if isinstance(node, ast.For) and not isinstance(node.iter, ast.Constant)]
    if not loops:
        return False
    loop = loops[0]
    walked, place = "everything", "place"
    item = ast.parse(f"list({walked})[{place}]", mode="eval").body
    first = ast.Assign(targets=[ast.Name(walked, ast.Store())], value=ast.parse("list(x)", mode="eval").body, lineno=0)
    assert isinstance(first.value, ast.Call)
    first.value.args = [loop.iter]
    taken = ast.Assign(targets=[loop.target], value=item, lineno=0)
    slow = ast.For(
        target=ast.Name(place, ast.Store()),
        iter=ast.parse(f"range(len({walked}))", mode="eval").body,
        body=[taken, *loop.body],
        orelse=loop.orelse,
        lineno=0,
    )
    _replace(body, loop, first, slow)
    return True


def _replace(body: list[ast.stmt], old: ast.stmt, *new: ast.stmt) -> None:
    blocks = [
        body,
        *(
            block
            for node in _nodes(body)
            for name in ("body", "orelse", "finalbody")
            if isinstance(block := getattr(node, name, None), list)
        ),
    ]
    for block in blocks:
        if old in block:
            at = block.index(old)
            block[at : at + 1] = new
            return


_SLOWER: dict[str, Callable[[list[ast.stmt]], bool]] = {
    "set": _set_as_list,
    "list": _list_anew,
    "mapping": _mapping_anew,
    "walk": _walked_by_place,
}
"""What makes a body slow, in place; whether it did."""
