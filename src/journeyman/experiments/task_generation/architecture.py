"""Code moved where it closes a cycle of imports: whoever brings it back to where it belongs opens it again."""

import ast
import builtins
import random
import textwrap
from collections.abc import Iterator

from journeyman.experiments.task_generation.base import Rejected, TaskDraft, TaskSource
from journeyman.experiments.task_generation.refactor import MOST_COVERING, rewritten
from journeyman.rewards.repository.source import imports, reached
from journeyman.rewards.repository.suite import run_suite
from journeyman.rewards.repository.verdict import failing
from journeyman.sandbox.base import Sandbox
from journeyman.tasks.repository import Category, Checks, RepositoryTask, split_of
from journeyman.tasks.repository.mutations import SourceFunction, functions

_SECONDS = 60.0


class ArchitectureTasks:
    """What a function of a lower module does is done in a higher one, which the lower one imports for it."""

    category = Category.ARCHITECTURE
    version = "1"

    def drafts(self, subject: TaskSource, chance: random.Random) -> Iterator[TaskDraft]:
        graph, tree = imports(subject.tree), subject.tree
        paths = {tree.module_of(path): path for path in tree.sources if not path.endswith("__init__.py")}
        below = {module: reached(graph, module) for module in paths}
        # What imports it already comes first: there a cycle is closed.
        pairs = [(one, other) for one in paths for other in paths if _are_apart(one, other) and other not in below[one]]
        found = [(one, other, each) for one, other in pairs for each in functions(tree.text(paths[one])) if _can_move(each)]
        chance.shuffle(found)
        found.sort(key=lambda each: each[0] not in below[each[1]])
        seen = set[tuple[str, str]]()
        for one, other, function in found:
            moved = _moved(tree.text(paths[one]), function, tree.text(paths[other]), (one, other))
            if moved is None or (one, function.name) in seen:
                continue
            seen.add((one, function.name))
            yield TaskDraft(
                key=f"{one}:{function.name}>{other}",
                source=f"{one}:{function.name}",
                path=paths[one],
                base={paths[one]: moved[0], paths[other]: moved[1]},
                reference={paths[one]: tree.text(paths[one]), paths[other]: tree.text(paths[other])},
                lines=tuple(function.lines),
                told={"module": one, "forbidden": other},
            )

    async def task(self, draft: TaskDraft, subject: TaskSource, box: Sandbox) -> RepositoryTask | Rejected:
        tests = subject.covering(draft.path, draft.lines)[:MOST_COVERING]
        if not tests:
            return Rejected("no test comes by it")
        run = await run_suite(box, subject.tree.changed(draft.base), tests, seconds=_SECONDS, plugins=subject.plugins)
        if why := failing(run, tests):
            return Rejected("the tests do not pass where it is moved", why)
        return RepositoryTask(
            category=self.category,
            repository=subject.name,
            tree=subject.tree.digest,
            environment=subject.environment.digest,
            statement=_statement(draft),
            base=draft.base,
            reference=draft.reference,
            checks=Checks(pass_to_pass=tests, measure={key: draft.told[key] for key in ("module", "forbidden")}),
            level={"lines": float(len(draft.lines)), "files": 2.0, "covering": float(len(tests))},
            source=draft.source,
            made_by=f"architecture {self.version}",
            license=subject.license,
            split=split_of(subject.name, draft.source),
        )


def _are_apart(one: str, other: str) -> bool:
    """Two modules of one package."""
    return one != other and one.partition(".")[0] == other.partition(".")[0]


def _statement(draft: TaskDraft) -> str:
    module, forbidden = draft.told["module"], draft.told["forbidden"]
    return (
        f"The module `{module}` must not depend on `{forbidden}`: neither import it, within a function either, nor import "
        "anything that does. It does so today. Change the code so that it does not, without making any two modules import each "
        "other that did not. What the package offers keeps its names and parameters and does what it does now, and no import "
        "may be hidden (`importlib`, `__import__`, `exec`). The tests must go on passing; they are run with `python -m pytest`."
    )


def _can_move(function: SourceFunction) -> bool:
    """Whether its body may stand elsewhere: a plain function of the module that says nothing of its own place."""
    node = function.node
    own = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    says = {"super", "locals", "globals", "vars", "eval", "exec", "__name__", "__file__", "__class__"}
    kinds = ast.Global | ast.Nonlocal | ast.Import | ast.ImportFrom
    return (
        isinstance(node, ast.FunctionDef)
        and "." not in function.name
        and len(function.body) >= 2
        and not own & says
        and not any(isinstance(each, kinds) for each in ast.walk(node))
    )


def _moved(text: str, function: SourceFunction, other: str, names: tuple[str, str]) -> tuple[str, str] | None:
    """Both files with the body in the other one; `None` where that cannot be."""
    module, elsewhere = names
    arguments, inner = function.node.args, f"_{function.name.strip('_')}_of_{module.rpartition('.')[2]}"
    if any(each.name == inner for each in functions(other)):
        return None
    plain = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    keywords = [each.arg for each in arguments.kwonlyargs]
    rest = [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    more = [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    taken = [*plain, *(rest or (["*"] if keywords else [])), *keywords, *more]
    given = [*plain, *rest, *(f"{each}={each}" for each in keywords), *more]
    called = ast.parse(f"from {elsewhere} import {inner}\nreturn {inner}({', '.join(given)})").body
    before = rewritten(text, function, called)
    if before is None:
        return None
    body = textwrap.indent(ast.unparse(ast.Module(body=list(function.body), type_ignores=[])), "    ")
    needed = sorted(_needed(text, function))
    brought = f"    from {module} import {', '.join(needed)}\n\n" if needed else ""
    return before, f"{other.rstrip()}\n\n\ndef {inner}({', '.join(taken)}):\n{brought}{body}\n"


def _needed(text: str, function: SourceFunction) -> set[str]:
    """Names of the module that the body uses."""
    own = {each.arg for each in ast.walk(function.node) if isinstance(each, ast.arg)}
    named = [each for node in function.body for each in ast.walk(node) if isinstance(each, ast.Name)]
    own |= {each.id for each in named if isinstance(each.ctx, ast.Store)}
    used = {each.id for each in named if isinstance(each.ctx, ast.Load)} - own
    top = {
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.alias | ast.Name)
    }
    bound = {getattr(node, "asname", None) or getattr(node, "name", getattr(node, "id", "")).partition(".")[0] for node in top}
    return {name for name in used if name in bound and (name not in dir(builtins) or _binds(text, name))}


def _binds(text: str, name: str) -> bool:
    """Whether a module has a name of its own that is also one of the built-in ones."""
    body = ast.parse(text).body
    imported = (
        each.asname or each.name for node in body if isinstance(node, ast.Import | ast.ImportFrom) for each in node.names
    )
    named = (node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef))
    stored = (
        each.id for node in body for each in ast.walk(node) if isinstance(node, ast.Assign) and isinstance(each, ast.Name)
    )
    return name in {*imported, *named, *stored}
