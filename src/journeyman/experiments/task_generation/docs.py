"""Functions whose documentation is taken out: whoever writes it anew shows with examples what they do."""

import random
from collections.abc import Iterator

from journeyman.experiments.task_generation.base import Rejected, TaskDraft, TaskSource
from journeyman.rewards.repository.examples import completed, lacking, run_examples, unnamed
from journeyman.sandbox.base import Sandbox
from journeyman.tasks.repository import Category, Checks, RepositoryTask, split_of
from journeyman.tasks.repository.mutations import SourceFunction
from journeyman.tasks.repository.rewriting import (
    as_rows,
    docstring,
    function_of,
    mutants,
    renamed,
    signature,
    with_docstring,
    without_docstring,
)

HIDDEN = 4
"""Faults of the function, of which examples must notice one."""
TRIED = 8
"""Faults that are tried to find one that the author's own examples notice."""


class Docs:
    """The docstring of a public function whose examples notice when it is broken."""

    category = Category.DOCS
    version = "1"

    def drafts(self, subject: TaskSource, chance: random.Random) -> Iterator[TaskDraft]:
        found = list[TaskDraft]()
        for path, function in subject.functions():
            words = docstring(function)
            if function.is_public and ">>>" in words and '"""' not in words:
                text = subject.tree.text(path)
                whole = completed(words, unnamed(words, function))
                found.append(
                    TaskDraft(
                        key=f"{path}:{function.name}",
                        source=f"{subject.tree.module_of(path)}:{function.name}",
                        path=path,
                        base={path: without_docstring(text, function)},
                        reference={path: text if whole == words else with_docstring(text, function, whole)},
                        told={"function": function.name, "words": whole, "seed": str(chance.getrandbits(64))},
                    )
                )
        chance.shuffle(found)
        yield from found

    async def task(self, draft: TaskDraft, subject: TaskSource, box: Sandbox) -> RepositoryTask | Rejected:
        name, words = draft.told["function"], draft.told["words"]
        text, module = subject.tree.text(draft.path), draft.source.partition(":")[0]
        function = function_of(str(draft.reference[draft.path]), name)
        if function is None or (why := lacking(docstring(function), function)):
            return Rejected("its documentation lacks what is asked for", why if function else "")
        for version in (text, renamed(text)):
            run = await run_examples(box, subject.tree.changed({draft.path: version}), words, module)
            if not run.good:
                return Rejected("its own examples do not come true", run.why)
        noticed, others = list[dict[str, object]](), list[dict[str, object]]()
        for mutant in mutants(text, name, random.Random(draft.told["seed"]))[:TRIED]:
            run = await run_examples(box, subject.tree.changed({draft.path: mutant.applied(text)}), words, module)
            if not run.out_of_time:
                (others if run.good else noticed).extend(as_rows([mutant]))
            if noticed and len(noticed) + len(others) >= HIDDEN:
                break
        if not noticed:
            return Rejected("its own examples notice no fault" if others else "nothing in it can be broken")
        hidden = [*noticed, *others][:HIDDEN]
        return self._made(draft, subject, function, hidden)

    def _made(
        self, draft: TaskDraft, subject: TaskSource, function: SourceFunction, hidden: list[dict[str, object]]
    ) -> RepositoryTask:
        module = draft.source.partition(":")[0]
        return RepositoryTask(
            category=self.category,
            repository=subject.name,
            tree=subject.tree.digest,
            environment=subject.environment.digest,
            statement=_statement(subject, module, function),
            base=draft.base,
            reference=draft.reference,
            checks=Checks(measure={"path": draft.path, "module": module, "function": function.name, "mutants": hidden}),
            may_change=(draft.path,),
            level={"lines": float(len(docstring(function).splitlines())), "files": 1.0},
            source=draft.source,
            made_by=f"docs {self.version}",
            license=subject.license,
            split=split_of(subject.name, draft.source),
        )


def _statement(subject: TaskSource, module: str, function: SourceFunction) -> str:
    return (
        f"`{signature(function)}` in `{module}` of {subject.name} is not documented. Write its docstring: what it does, each "
        "of its parameters by name, and examples (`>>>`) that call it and show what comes out of it, so that whoever breaks it "
        "notices. Nothing else may be changed. Examples are run by doctest, in the names of the module."
    )
