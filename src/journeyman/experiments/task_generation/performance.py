"""Code made slow by steps that change nothing of what it gives: what it was before is as fast as is asked."""

import ast
import random
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy

from journeyman.experiments.task_generation.base import Rejected, TaskDraft, TaskSource
from journeyman.experiments.task_generation.refactor import MOST_COVERING, rewritten
from journeyman.rewards.repository.behaviour import Target, behaviour
from journeyman.rewards.repository.instructions import SIZES, CountedCalls, as_fast, cost
from journeyman.rewards.repository.suite import run_suite
from journeyman.rewards.repository.verdict import failing
from journeyman.sandbox.base import Sandbox
from journeyman.tasks.repository import Category, Checks, RepositoryTask, split_of

SLOWER = 2.0
"""Times the instructions of what it was, at the largest size; and the more the larger."""
LEAST = 5_000_000
"""Instructions more than what it was: far more than two runs of the same differ by."""
CALLS = 2
_TRIED = 6
_SECONDS = 15.0
_COUNT_SECONDS = 60.0
"""A check may take four times as long: whoever is slow must come to an end there."""
_GROWING = ("list", "tuple", "set", "dict", "iterator", "range")


class Performance:
    """A function that tests call, made slow where there is much."""

    category = Category.PERFORMANCE
    version = "2"

    def drafts(self, subject: TaskSource, chance: random.Random) -> Iterator[TaskDraft]:
        found = [
            (path, function, kind) for path, function in subject.functions() if "." not in function.name for kind in _SLOWER
        ]
        chance.shuffle(found)
        for path, function, kind in found:
            node = deepcopy(function.node)
            body = node.body[len(node.body) - len(function.body) :]
            if (
                not body
                or not _SLOWER[kind](node, body)
                or (slow := rewritten(subject.tree.text(path), function, body)) is None
            ):
                continue
            yield TaskDraft(
                key=f"{path}:{function.name}:{kind}",
                source=f"{subject.tree.module_of(path)}:{function.name}",
                kind=kind,
                path=path,
                base={path: slow},
                reference={path: subject.tree.text(path)},
                lines=tuple(function.lines),
                told={"function": function.name, "module": subject.tree.module_of(path)},
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
        before = await cost(box, subject.tree, workload, seconds=_COUNT_SECONDS)
        if before.missing or before.broken:
            return Rejected("it cannot be counted", before.missing or before.broken)
        after = await cost(box, slow, workload, seconds=_COUNT_SECONDS)
        if after.broken:
            return Rejected("it cannot be counted", after.broken)
        shares = [mine / max(1, its) for mine, its in zip(after.instructions, before.instructions, strict=True)]
        more = after.instructions[-1] - before.instructions[-1]
        if more < LEAST or shares[-1] < SLOWER or shares[-1] <= shares[0] or as_fast(after.instructions, before.instructions):
            return Rejected("it is not slow enough", ", ".join(f"{share:.2f}" for share in shares))
        measure = {
            "module": workload.module,
            "function": workload.function,
            "calls": list(workload.calls),
            "sizes": list(workload.sizes),
        }
        return RepositoryTask(
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
            made_by=f"performance {self.version} {draft.kind}",
            license=subject.license,
            split=split_of(subject.name, draft.source),
        )


async def _calls(subject: TaskSource, target: Target, box: Sandbox) -> list[object]:
    """Calls of the tests that hold something which there can be more of, the longest first, each once."""
    found = (await behaviour(box, subject.tree, target, subject.plugins)).calls
    able = {str(call): call for call in found if any(_can_grow(kind, held) for kind, held in call)}
    return [able[told] for told in sorted(able, key=lambda told: (-len(told), told))]


def _can_grow(kind: str, held: object) -> bool:
    return bool(held) and (kind in _GROWING or (isinstance(held, str) and kind == "value" and len(held) > 1))


async def _workload(draft: TaskDraft, calls: Sequence[object], subject: TaskSource, box: Sandbox) -> CountedCalls | Rejected:
    """Some calls that can be made with much, and give the same from slow code."""
    good, why = list[object](), "the tests call it with nothing that there can be more of"
    for call in calls[:_TRIED]:
        one = CountedCalls(module=draft.told["module"], function=draft.told["function"], calls=(call,))
        fast = await cost(box, subject.tree, one, count=False)
        slow = await cost(box, subject.tree.changed(draft.base), one, count=False)
        if not fast.broken and fast.gave == slow.gave:
            good.append(call)
        else:
            why = fast.broken or slow.broken or "it does not give the same where there is much"
        if len(good) == CALLS:
            break
    if not good:
        return Rejected("there is no call that can be made with much", why)
    return CountedCalls(module=draft.told["module"], function=draft.told["function"], calls=tuple(good), sizes=SIZES)


def _statement(subject: TaskSource, draft: TaskDraft) -> str:
    return (
        f"`{draft.told['function']}` of {subject.name} takes far too long where it is given much: what it takes grows faster "
        "than what it is given. Make it as fast as it can reasonably be. It must go on giving the same, and what the package "
        "offers keeps its names and parameters. Processor instructions are counted, with calls like those of the tests, but "
        "larger. The tests must go on passing; they are run with `python -m pytest`."
    )


# What makes a body slow, in place.


def _nodes(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    for each in body:
        yield from ast.walk(each)


def _called_by_name(value: ast.expr) -> str:
    return value.func.id if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else ""


def _made_of(body: Sequence[ast.stmt], made: Callable[[ast.expr], bool]) -> set[str]:
    """Names that are only ever given such a value, and that no function within knows."""
    found, other = set[str](), set[str]()
    for node in _nodes(body):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            (found if made(node.value) else other).add(node.targets[0].id)
        elif isinstance(node, ast.FunctionDef | ast.Lambda):
            other |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return found - other


def _free(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> str:
    """A name that the function does not say yet."""
    said = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} | {
        each.arg for each in ast.walk(node) if isinstance(each, ast.arg)
    }
    return next(each for each in (name, *(f"{name}_{number}" for number in range(2, 1000))) if each not in said)


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _given(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign(targets=[ast.Name(name, ast.Store())], value=value, lineno=0)


def _blocks(body: list[ast.stmt]) -> Iterator[list[ast.stmt]]:
    yield body
    for node in _nodes(body):
        yield from (found for name in ("body", "orelse", "finalbody") if isinstance(found := getattr(node, name, None), list))


def _replace(body: list[ast.stmt], old: ast.stmt, *new: ast.stmt) -> None:
    block = next(block for block in _blocks(body) if old in block)
    at = block.index(old)
    block[at : at + 1] = new


def _own(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """What is in a body, but in no function or class within it."""
    for node in body:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _own(list(ast.iter_child_nodes(node)))


def _in_loops(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Statements that are run again and again."""
    loops = [node for node in _own(body) if isinstance(node, ast.For | ast.While)]
    return list(dict.fromkeys(node for loop in loops for node in _own(loop.body) if isinstance(node, ast.stmt)))


_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _set_as_list(_: _Function, body: list[ast.stmt]) -> bool:
    """What was looked up in a set is searched in a list."""
    names = _made_of(body, lambda value: _called_by_name(value) == "set")
    for node in _nodes(body):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
            if node.attr != "add":
                return False
            node.attr = "append"
    for node in _nodes(body):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _called_by_name(node.value) == "set":
            node.value.func = _load("list")
    return bool(names)


_CONTAINERS = ("list", "dict", "set", "deque", "defaultdict", "Counter", "OrderedDict")
_CHANGES = ("append", "add", "update", "extend", "setdefault", "insert")


def _copied(_: _Function, body: list[ast.stmt]) -> bool:
    """What is filled step by step is copied before each of them."""
    displays = ast.List | ast.Dict | ast.Set
    names = _made_of(body, lambda value: isinstance(value, displays) or _called_by_name(value) in _CONTAINERS)
    found = [(node, name) for node in _in_loops(body) if (name := _changed_by(node)) in names]
    for node, name in found:
        copy = ast.Call(func=ast.Attribute(_load(name), "copy", ast.Load()), args=[], keywords=[])
        _replace(body, node, _given(name, copy), node)
    return bool(found)


def _changed_by(node: ast.stmt) -> str:
    """The name of what a statement fills; empty where it fills nothing."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr))) if attr in _CHANGES:
            return name
        case (
            ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name))])
            | ast.AugAssign(target=ast.Subscript(value=ast.Name(id=name)))
        ):
            return name
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Subscript(value=ast.Name(id=name)), attr=attr))):
            return name if attr in _CHANGES else ""
    return ""


def _updated_singly(node: _Function, body: list[ast.stmt]) -> bool:
    """What is put into a mapping at once is put in one by one, each time into a new mapping."""
    names, found = _made_of(body, lambda value: isinstance(value, ast.Dict | ast.Call)), False
    key, value = _free(node, "key"), _free(node, "value")
    for each in list(_nodes(body)):
        match each:
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="update"), args=[much], keywords=[])
            ) if name in names:
                text = f"for {key}, {value} in dict(x).items():\n    {name} = {name}.copy()\n    {name}[{key}] = {value}"
                (loop,) = ast.parse(text).body
                call = next(one for one in ast.walk(loop) if isinstance(one, ast.Call) and _called_by_name(one) == "dict")
                call.args = [much]
                _replace(body, each, loop)
                found = True
    return found


def _remembered(node: _Function, body: list[ast.stmt]) -> bool:
    """All that a loop has come by so far is kept, in a new list each time."""
    loop = next((each for each in _own(body) if isinstance(each, ast.For)), None)
    if loop is None:
        return False
    seen, item = _free(node, "so_far"), _free(node, "item")
    kept = _given(seen, ast.BinOp(_load(seen), ast.Add(), ast.List([_load(item)], ast.Load())))
    taken = ast.Assign(targets=[loop.target], value=ast.parse(f"{seen}[-1]", mode="eval").body, lineno=0)
    loop.target, loop.body = ast.Name(item, ast.Store()), [kept, taken, *loop.body]
    _replace(body, loop, _given(seen, ast.List([], ast.Load())), loop)
    return True


def _walked_by_place(node: _Function, body: list[ast.stmt]) -> bool:
    """What was walked through is copied for each of its items."""
    loop = next((each for each in _own(body) if isinstance(each, ast.For)), None)
    if loop is None:
        return False
    walked, place = _free(node, "everything"), _free(node, "place")
    first = _given(walked, ast.Call(func=_load("list"), args=[loop.iter], keywords=[]))
    item = ast.parse(f"list({walked})[{place}]", mode="eval").body
    loop.iter = ast.parse(f"range(len({walked}))", mode="eval").body
    loop.body = [ast.Assign(targets=[loop.target], value=item, lineno=0), *loop.body]
    loop.target = ast.Name(place, ast.Store())
    _replace(body, loop, first, loop)
    return True


_GATHERED: dict[type[ast.expr] | str, str] = {
    ast.ListComp: "{name} = {name} + [{item}]",
    ast.SetComp: "{name} = {name} | {{{item}}}",
    ast.DictComp: "{name} = {{**{name}, {item}}}",
    "list": "{name} = {name} + [{item}]",
    "tuple": "{name} = (*{name}, {item})",
    "set": "{name} = {name} | {{{item}}}",
}
_BEGUN = {ast.ListComp: "[]", ast.SetComp: "set()", ast.DictComp: "{}", "list": "[]", "tuple": "()", "set": "set()"}


def _spelled_out(node: _Function, body: list[ast.stmt]) -> bool:
    """What was gathered at once is a new collection for each item."""
    for each in _own(body):
        if isinstance(each, ast.Return | ast.Assign) and each.value is not None and (parts := _comprehended(each.value)):
            kind, item, generators = parts
            name = _free(node, "gathered")
            step: list[ast.stmt] = ast.parse(_GATHERED[kind].format(name=name, item=item)).body
            for one in reversed(generators):
                for test in reversed(one.ifs):
                    step = [ast.If(test=test, body=step, orelse=[])]
                step = [ast.For(target=one.target, iter=one.iter, body=step, orelse=[], lineno=0)]
            each.value = _load(name)
            _replace(body, each, *ast.parse(f"{name} = {_BEGUN[kind]}").body, *step, each)
            return True
    return False


def _comprehended(value: ast.expr) -> tuple[type[ast.expr] | str, str, list[ast.comprehension]] | None:
    """What kind of collection it is, each item of it as text, and what it is made from; `None` where it is none."""
    match value:
        case ast.ListComp(elt=item, generators=made) | ast.SetComp(elt=item, generators=made):
            return type(value), ast.unparse(item), made
        case ast.DictComp(key=key, value=item, generators=made):
            return ast.DictComp, f"{ast.unparse(key)}: {ast.unparse(item)}", made
        case ast.Call(func=ast.Name(id=("list" | "tuple" | "set") as kind), args=[ast.GeneratorExp(elt=item, generators=made)]):
            return kind, ast.unparse(item), made
        case ast.Call(func=ast.Name(id=("list" | "tuple" | "set") as kind), args=[much], keywords=[]):
            each = ast.comprehension(target=ast.Name("each", ast.Store()), iter=much, ifs=[], is_async=0)
            return kind, "each", [each]
    return None


def _made_again(_: _Function, body: list[ast.stmt]) -> bool:
    """What was made once, before a loop, is made again each time that the loop asks for it."""
    made = {
        node.targets[0].id: _called_by_name(node.value)
        for node in _own(body)
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    }
    once = _made_of(body, lambda value: _called_by_name(value) in ("tuple", "list", "set", "frozenset"))
    repeated = [node for node in _own(body) if isinstance(node, ast.For | ast.While)]
    asked = [one for loop in repeated for node in loop.body for one in ast.walk(node)]
    asked += [one for node in _own(body) if isinstance(node, ast.ListComp | ast.GeneratorExp) for one in ast.walk(node.elt)]
    found = False
    for node in dict.fromkeys(asked):
        for field, value in list(ast.iter_fields(node)):
            # `x[0] = 1` and `x.append(1)` are about the one that is there.
            stored = isinstance(node, ast.Attribute) or (isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load))
            if isinstance(value, ast.Name) and isinstance(value.ctx, ast.Load) and value.id in once and not stored:
                setattr(node, field, ast.Call(func=_load(made[value.id]), args=[value], keywords=[]))
                found = True
            if isinstance(value, list) and isinstance(node, ast.Call):
                for at, each in enumerate(value):
                    if isinstance(each, ast.Name) and each.id in once:
                        value[at] = ast.Call(func=_load(made[each.id]), args=[each], keywords=[])
                        found = True
    return found


_WALKERS = {"iter", "list", "tuple", "set", "enumerate", "zip", "map", "filter", "islice", "chain", "reversed", "sorted", "sum"}
_WALKERS |= {
    "zip_longest",
    "tee",
    "takewhile",
    "dropwhile",
    "starmap",
    "accumulate",
    "compress",
    "groupby",
    "any",
    "all",
    "dict",
}


def _gathered_first(node: _Function, body: list[ast.stmt]) -> bool:
    """What is given to be walked through is first put into a list, a new one for each item."""
    names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
    walked = {value.id for value in _walked(body) if isinstance(value, ast.Name)}
    name = next((each for each in names if each in walked), None)
    if name is None:
        return False
    all_of_it, item = _free(node, "gathered"), _free(node, "item")
    text = f"{all_of_it} = []\nfor {item} in {name}:\n    {all_of_it} = {all_of_it} + [{item}]\n{name} = {all_of_it}"
    body[:0] = ast.parse(text).body
    return True


def _walked(body: Sequence[ast.stmt]) -> Iterator[ast.expr]:
    """What a body walks through."""
    for node in _nodes(body):
        match node:
            case ast.For(iter=much) | ast.comprehension(iter=much) | ast.YieldFrom(value=much):
                yield much
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _WALKERS:
                yield from node.args


_SLOWER: dict[str, Callable[[_Function, list[ast.stmt]], bool]] = {
    "set": _set_as_list,
    "copy": _copied,
    "update": _updated_singly,
    "remember": _remembered,
    "walk": _walked_by_place,
    "spell": _spelled_out,
    "again": _made_again,
    "gather": _gathered_first,
}
"""What makes a body slow; whether it did."""
