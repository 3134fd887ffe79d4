"""From what a team wrote down to proposals: what `journeyman train playbook --from documents` runs.

Documents that tell of a mistake, or of how one was mended, are read by a reflector, each by itself. What it draws is held: a
document is what somebody claims, and whoever can write one could teach agents anything. A person approves or rejects; what is
approved is a candidate like any other, which a gate examines before it is served.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

from journeyman.agents.replay import CallBudget
from journeyman.core.document import Document
from journeyman.core.errors import InputError
from journeyman.core.format import counted
from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.task import Split, content
from journeyman.experiments import settings, wiring
from journeyman.experiments.agents import candidate_of
from journeyman.experiments.playbook.config import DocumentsConfig
from journeyman.experiments.playbook.trace_reflector import connect_reflector, reflector_name
from journeyman.experiments.run import Run
from journeyman.io.files import check_writable, locked
from journeyman.models import embedders, parse
from journeyman.models.embedders import Cached
from journeyman.optimizers.playbook import edit
from journeyman.optimizers.playbook.curator import Curator
from journeyman.optimizers.playbook.evidence import EvidenceGroup, EvidenceMember, GroupKind
from journeyman.optimizers.playbook.from_traces import GroupOutcome, LearnedFromTraces, LearnTools, ReflectionCache, learn
from journeyman.optimizers.playbook.run import spoken
from journeyman.stores import RunRecord, Store, open_store
from journeyman.stores.documents import DocumentQuery, DocumentStore, open_documents
from journeyman.tracing.redaction import Redactor

KIND = "train playbook"
DOMAIN = "general"
SILENT = "say nothing of a mistake, or of how one was mended"
HELD_OUT = "hold what a held-out task asks"
_LONGEST = 6_000
"""Characters of a document that a reflector reads."""
_LONG = 24
"""Characters of a question that stands nowhere by chance."""
_TELLING = re.compile(
    r"\b(?:mistake\w*|wrong(?:ly)?|bugs?|fix(?:e[sd]|ing)?|broken?|regress\w*|revert\w*|root cause|lessons?|learn(?:ed|t)"
    r"|should(?:n't| not)?(?: have| always| never)|post-?mortems?|outages?|workarounds?|turned out|never again|forgot\w*"
    r"|fehler\w*|behoben|kaputt|falsch\w*|gelernt|ursache\w*|vergessen)\b",
    re.IGNORECASE,
)
_PATCH = re.compile(r"^diff --git ", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsRead:
    """What there is to learn from, before a model is asked."""

    read: int
    groups: tuple[EvidenceGroup, ...]
    """A document each."""
    titles: Mapping[str, str]
    """What they are called, by their ids."""
    newest: datetime | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    """How many documents are not asked about, by why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsResult:
    """What came of it."""

    found: DocumentsRead
    playbook: Playbook
    path: str
    new: tuple[Bullet, ...]
    """Proposals that were not there before."""
    outcomes: tuple[GroupOutcome, ...]
    refused: Mapping[str, int]
    run_id: str
    calls: int
    cost: float | None
    domain: str
    candidate: str | None
    """Of what a person has approved; `None` where nothing is."""

    @property
    def reason(self) -> str:
        """One sentence."""
        if self.new:
            return f"{counted(len(self.new), 'proposal')} that a person must approve before anybody is shown it"
        if not self.found.groups:
            return f"nothing was learned: these documents {SILENT}"
        left = [each.left_out for each in self.outcomes if each.left_out]
        return f"nothing was learned: {left[0]}" if len(left) == len(self.outcomes) else "nothing is new in these documents"

    def json(self) -> dict[str, Any]:
        drafts = {draft.insight.content for outcome in self.outcomes for draft in outcome.drafts}
        return {
            "agent": "documents",
            "domain": self.domain,
            "run_id": self.run_id,
            "documents": self.found.read,
            "telling": len(self.found.groups),
            "groups_worded": sum(not outcome.left_out for outcome in self.outcomes),
            "rules": len(drafts),
            "new": [bullet.id for bullet in self.new],
            "held": len(self.playbook.held),
            "shown": len(self.playbook.active),
            "left_out": dict(self.found.left_out),
            "evidence": [outcome.json() | {"tool": self.found.titles[outcome.group.template]} for outcome in self.outcomes],
            "refused": dict(self.refused),
            "calls": self.calls,
            "cost": self.cost,
            "playbook_path": self.path,
            "candidate": self.candidate,
            "verdict": "unexamined",
            "reason": self.reason,
        }


class DocumentsTrainer:
    """Draws proposals from documents."""

    def __init__(self, config: DocumentsConfig, query: DocumentQuery, *, said: Callable[[str], None] = lambda _: None) -> None:
        self.config, self.query, self.said = config, query, said
        self.domain = config.domain or DOMAIN
        self.path = Path(config.output_playbook_path or f"playbooks/documents-{spoken(self.domain)}.json")

    def read(self) -> DocumentsRead:
        """The documents that are meant, as far as they tell of something. Asks no model.

        Raises:
            InputError: There are none.
        """
        with open_documents(self.config.store, make=False) as kept, open_store(self.config.store, make=False) as store:
            documents = list(_latest(kept, self.query))
            asked = {content(each.trace.query) for each in store.attempts(split=Split.HELD_OUT)}
        if not documents:
            raise InputError(
                "there are no such documents; `journeyman collect git`, `messages` or `devlogs` brings some in, and "
                "`journeyman documents list` shows what there is"
            )
        return _read(documents, {text for text in asked if len(text) >= _LONG}, self.domain)

    async def train(self, found: DocumentsRead) -> DocumentsResult:
        """Ask about each, and write down what is proposed. What was asked before is not asked again.

        Raises:
            InputError: No model is named that can read, or the playbook cannot be written.
            PlaybookError: Another process does the same.
        """
        name = reflector_name(self.config)
        if not name:
            raise InputError("a document is put into words by a model: name one with --reflector-model, or set OPENAI_API_KEY")
        if parse(name).kind == "embedded":
            raise InputError("the embedded model reads error messages alone; name another with --reflector-model")
        check_writable(self.path)
        lease = Path(self.config.project) / "learn" / f"documents-{spoken(self.domain)}"
        busy = f"another process reads documents for {self.domain} just now; wait for it"
        with locked(lease, patience=0, busy=busy), open_store(self.config.store) as store:
            begun = edit.editable(self.path) if self.path.exists() else Playbook()
            return await self._trained(found, begun, store)

    async def _trained(self, found: DocumentsRead, begun: Playbook, store: Store) -> DocumentsResult:
        told = {name: value for name, value in asdict(self.config).items() if name != "store"}
        run = Run.new(f"documents-{spoken(self.domain)}", kind=KIND, config=told, store=store)
        budget = CallBudget(self.config.max_calls, self.config.max_cost)
        with run.tracked():
            self.said(f"{counted(len(found.groups), 'document')} of {found.read} tell of a mistake, or of how one was mended")
            learned = await self._learned(found, begun, budget)
            playbook = self._written(begun, learned)
            # What a person has approved of is a candidate, which somebody may have examined.
            if (candidate := candidate_of(playbook)) is not None:
                store.add_candidate(candidate)
            known = {bullet.id for bullet in begun.bullets}
            result = DocumentsResult(
                found=found,
                playbook=playbook,
                path=str(self.path),
                new=tuple(bullet for bullet in playbook.bullets if bullet.id not in known),
                outcomes=learned.outcomes,
                refused=learned.refused,
                run_id=run.id,
                calls=budget.calls,
                cost=None if budget.unpriced else budget.cost,
                domain=self.domain,
                candidate=candidate.id if candidate else None,
            )
            run.end(result.json())
        return result

    async def _learned(self, found: DocumentsRead, begun: Playbook, budget: CallBudget) -> LearnedFromTraces:
        how = repr((reflector_name(self.config), sorted(group.digest for group in found.groups)))
        newest = min(filter(None, (found.newest, wiring.now())))
        reflector = connect_reflector(self.config, budget)
        assert reflector is not None
        tools = LearnTools(
            reflector=reflector,
            curator=Curator(Cached(embedders.load(self.config.embedder))),
            budget=budget,
            cache=ReflectionCache(Path(self.config.project) / "learn" / "reflections.jsonl"),
            least=1,
            days=0,
            name=f"documents-{spoken(self.domain)}-{blake2b(how.encode(errors='surrogatepass'), digest_size=6).hexdigest()}",
            stamp=newest.astimezone(UTC).isoformat(timespec="seconds"),
        )
        try:
            return await learn(found.groups, begun, tools)
        finally:
            await reflector.close()

    def _written(self, begun: Playbook, learned: LearnedFromTraces) -> Playbook:
        batch = learned.batch
        if not batch.deltas:
            return begun
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = replace(begun, created_at=begun.created_at or batch.at)
        return edit.merge(self.path, lambda _: batch, new=new).playbook


def _latest(kept: DocumentStore, query: DocumentQuery) -> Iterator[Document]:
    """Documents as they are now: what was revised since is not learned from."""
    after: str | None = None
    while True:
        page, after = kept.document_page(query, limit=500, after=after)
        yield from filter(None, (kept.document(each.id) for each in page))
        if after is None:
            return


def _read(documents: Sequence[Document], asked: Collection[str], domain: str) -> DocumentsRead:
    redactor = Redactor(settings.load().settings.record.redact)
    left_out: Counter[str] = Counter()
    groups: list[EvidenceGroup] = []
    for document in documents:
        plain = content(document.text)
        if any(question in plain for question in asked):
            left_out[HELD_OUT] += 1
        elif not (told := passages(document)):
            left_out[SILENT] += 1
        else:
            groups.append(_group(document, redactor.text(told), domain))
    named = {group.template for group in groups}
    known = [each.at for each in documents if each.at is not None and each.id in named]
    titles = {each.id: redactor.text(each.title or each.key)[:120] for each in documents if each.id in named}
    return DocumentsRead(
        read=len(documents), groups=tuple(groups), titles=titles, newest=max(known, default=None), left_out=dict(left_out)
    )


def _group(document: Document, told: str, domain: str) -> EvidenceGroup:
    by = (document.author or "").partition("<")[0].strip()
    head = f"{document.kind} of {document.source}{f', written {document.at:%Y-%m-%d}' if document.at else ''}"
    member = EvidenceMember(trace_id="", principal=by or document.source, said=f"{head}\n\n{told}", known=bool(by))
    return EvidenceGroup(kind=GroupKind.DOCUMENT, domain=domain, tool="", argument="", template=document.id, members=(member,))


def passages(document: Document) -> str:
    """The parts of a document that tell of a mistake or of how one was mended, with what stands around them; empty where none
    does. Of a commit, what it says, and not what it changed."""
    text = _PATCH.split(document.text, 1)[0] if document.kind == "commit" else document.text
    parts = [part for part in re.split(r"\n\s*\n", text) if part.strip()]
    if len(parts) == 1:
        parts = parts[0].splitlines()
    telling = [at for at, part in enumerate(parts) if _TELLING.search(part)]
    wanted = sorted({near for at in telling for near in (at - 1, at, at + 1) if 0 <= near < len(parts)})
    kept, size, last = list[str](), 0, -1
    for at in wanted:
        size += len(parts[at])
        if size > _LONGEST:
            kept.append(parts[at][: _LONGEST - size] + " […]")
            break
        kept += ["[…]"] if last >= 0 and at > last + 1 else []
        kept.append(parts[at])
        last = at
    return "\n\n".join(kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnBullet:
    """A bullet that a document led to, and where it is."""

    bullet: Bullet
    path: Path
    candidate: str | None
    """The newest one of that file, where there is one."""


def drawn_from(
    document: str, runs: Iterable[RunRecord], file_of: Callable[[RunRecord], Path | None]
) -> tuple[DrawnBullet, ...]:
    """The bullets that a document led to, as they are in the files that runs wrote.

    Args:
        runs: The newest first.
        file_of: Where a run wrote what it learned; `None` where it is not there any more.
    """
    files: dict[Path, str | None] = {}
    for run in runs:
        told = run.result or {}
        if told.get("agent") == "documents" and (path := file_of(run)) is not None:
            files[path] = files.get(path) or told.get("candidate")
    return tuple(
        DrawnBullet(bullet=bullet, path=path, candidate=candidate)
        for path, candidate in files.items()
        for bullet in _bullets(path)
        if document in bullet.provenance.documents
    )


def _bullets(path: Path) -> Sequence[Bullet]:
    try:
        return edit.editable(path).bullets
    except InputError:
        return ()
