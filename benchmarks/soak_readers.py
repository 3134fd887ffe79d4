"""Every reader of files and bytes from outside, each with sound input to break."""

import base64
import gzip
import hashlib
import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from safetensors.numpy import save

from benchmarks.soak_children import asked
from benchmarks.soak_fuzz import LONGEST, Reader
from journeyman.core import plan
from journeyman.core.errors import InputError
from journeyman.core.playbook import Add, Batch, Bullet, Playbook
from journeyman.core.policy import Choice, Forecast
from journeyman.experiments import compare, settings
from journeyman.io.jsonl import iter_jsonl, json_object
from journeyman.optimizers.planner import data as planner_data
from journeyman.optimizers.playbook import files as playbook_files
from journeyman.optimizers.playbook import journal
from journeyman.optimizers.router import decisions, outcomes, predict
from journeyman.optimizers.weights import adapters, metrics, model_shape
from journeyman.optimizers.weights.data import files as data_files
from journeyman.optimizers.weights.gguf import contents
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import SpanRow, TraceStore
from journeyman.tasks import code, questions
from journeyman.tasks.scenarios.read import read as read_scenarios
from journeyman.tracing.importers import checkpoints, execution_log, read
from journeyman.tracing.importers.source import Problem
from journeyman.tracing.otel import read as spans
from journeyman.tracing.otel import wire
from journeyman.tracing.redaction import Redactor
from journeyman.tracing.wire.dialects import Dialect, Exchange, dialect_of, read_exchange
from tests.support import ggufs, routing
from tests.support.spans import body, call

_DATA = Path(__file__).parents[1] / "tests" / "data"
_SOURCE = Path(__file__).parents[1] / "src" / "journeyman"
_AT = datetime(2026, 1, 2, tzinfo=UTC)
_APART = b"\n--------\n"


# Samples.


def _unpacked(path: Path) -> bytes:
    content = path.read_bytes()
    return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content


def _short(content: bytes) -> bytes:
    """The content, or its first lines where it is long."""
    return content if len(content) <= LONGEST else content[: content.rfind(b"\n", 0, LONGEST) + 1]


def of_files(*patterns: str, more: str = "") -> Callable[[], Sequence[bytes]]:
    """The files of the tests' own data, and of the full sets where JOURNEYMAN_DATA names them."""

    def samples() -> list[bytes]:
        found = [path for pattern in patterns for path in sorted(_DATA.glob(pattern))]
        if more and (data := os.environ.get("JOURNEYMAN_DATA")):
            found += sorted(Path(data).glob(more))[:40]
        return [_short(_unpacked(path)) for path in found if path.is_file() and path.name != "README.md"]

    return samples


def _checkpoints() -> list[bytes]:
    saved = {
        "session_data": {
            "s1": {"messages": [{"role": "user", "content": "Hi", "timestamp": _AT}, {"role": "assistant", "content": "Ho"}]}
        },
        "variable_scopes": {"scratch": {"thought": "a plan", "n": {1, 2}}},
        "task_state": {"status": "done", "tokens": 12, "cost": 0.5, "when": _AT},
        "agent_state": {"name": "shop", "path": Path("a/b")},
        "tool_capabilities": {"add": {"calls": 3}},
    }  # fmt: skip
    return [pickle.dumps(saved, protocol) for protocol in range(6)] + [json.dumps(saved, default=str).encode()]


def _inspect_archives() -> list[bytes]:
    return [path.read_bytes() for path in sorted(_DATA.glob("collect/inspect/*.eval"))]


def _playbook() -> Playbook:
    bullets = tuple(Bullet(id=f"b-{at}", content=f"Say it {at} times.", section="helpful") for at in range(3))
    return Playbook(bullets=bullets)


def _journal() -> list[bytes]:
    batches = [
        Batch(id=f"n{at}", at="2026-01-02", deltas=(Add(bullet=Bullet(id=f"n-{at}", content=f"New {at}")),)) for at in range(3)
    ]
    lines, previous = list[bytes](), ""
    changes: list[journal.Change] = [_playbook(), *batches, journal.Restore(1, "2026")]
    for number, change in enumerate(changes):
        line, previous = journal._line(number, previous, change)
        lines.append(line)
    return [b"".join(lines)]


def _rehashed(content: bytes) -> bytes:
    """A journal whose every line has the hash that it should have, whatever it says."""
    lines, previous = [], ""
    for line in content.split(b"\n"):
        head = line.rpartition(b',"hash":"')[0]
        if not head:
            continue
        try:
            fields = json.loads(head + b"}")
            said = json.dumps({**fields, "previous": previous}, ensure_ascii=False, separators=(",", ":")).encode()
        except (ValueError, RecursionError, TypeError):
            said = head + b"}"
        previous = hashlib.sha256(said).hexdigest()
        lines.append(said[:-1] + b',"hash":"' + previous.encode() + b'"}\n')
    return b"".join(lines)


def _exchanges() -> Iterator[bytes]:
    for line in (_DATA / "llm-http-cassettes" / "exchanges.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if dialect_of(row["uri"].partition("?")[0]) is not None:
            parts = (row["uri"].partition("?")[0], row.get("request_body") or "", row.get("response_body") or "")
            yield _APART.join(part.encode() for part in parts)


def _logged() -> list[bytes]:
    forecast = Forecast(worker="small", success=0.8, cost=None, p50=0.5, p95=None)
    choice = Choice(worker="small", propensity=0.9, candidates=("large", "small"), policy="p", forecasts=(forecast,))
    fields = {"worker": choice.worker, "propensity": choice.propensity, "candidates": choice.candidates, "policy": "p"}
    rows = [
        {"decision": f"d{at}", "at": _AT.isoformat(), "digest": "0", "request": f"Add {at}", "type": "sum", **fields}
        for at in range(4)
    ]
    known = {"ending": "right", "success": 1.0, "cost": 0.1, "seconds": 2.0, "input_tokens": 3}
    told = [{"outcome_of": f"d{at}", "at": _AT.isoformat(), **known} for at in range(4)]
    return ["".join(f"{json.dumps(row)}\n" for row in (*rows, *told)).encode()]


def _plans() -> list[bytes]:
    steps = [
        {"id": "1", "text": "find", "tool": "search", "arguments": {"q": "x"}, "gives": ["place"]},
        {"id": "2", "text": "book", "type": "booking", "worker": "small", "after": ["1"], "takes": ["place"]},
    ]
    return [json.dumps({"instruction": "find and book", "subtasks": steps}).encode()]


def _planner_sets() -> list[bytes]:
    subtasks = {
        "model_selections": [0, None], "task_types": [1, 0], "dependencies": [[], [0]], "tools": [None, 0], "texts": ["a", "b"],
    }  # fmt: skip
    examples = [
        {"instruction": f"letter {at}", "targets": subtasks, "rewards": {"success": 1.0, "cost": -0.1}} for at in range(3)
    ]
    known = {
        "task_types": [{"name": "baking"}, {"name": "letters"}],
        "models": [{"name": "small", "input_price": 0.1, "output_price": 0.2}],
        "tools": [{"name": "bake"}],
    }
    return [json.dumps({**known, "examples": examples}).encode(), json.dumps(examples).encode()]


def _dataset_rows() -> list[bytes]:
    talk = [{"role": "user", "content": "Hi"}]
    said = [
        {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]}
    ]
    tool = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    labelled = [{"prompt": "a", "completion": f"b{at}", "label": bool(at % 2), "source": {"n": at}} for at in range(3)]
    groups = [{"prompt": talk, "completions": [said, said], "rewards": [0.5, 1.0], "logprobs": [[-0.1], [-0.2]], "tools": tool}]
    return ["".join(f"{json.dumps(row)}\n" for row in rows).encode() for rows in (labelled, groups)]


def _results() -> list[bytes]:
    return ["".join(f'{{"task_id": "t{at}", "score": {at / 4}, "trial": {at % 2}}}\n' for at in range(5)).encode()]


def _questions() -> list[bytes]:
    rows = [{"id": f"q{at}", "question": f"What is {at} and 1?", "answer": str(at + 1), "domain": "sums"} for at in range(8)]
    marked = [{**row, "split": ("train", "test")[at % 2]} for at, row in enumerate(rows)]
    return [json.dumps(rows).encode(), "".join(f"{json.dumps(row)}\n" for row in marked).encode()]


def _code_tasks() -> list[bytes]:
    human = {
        "task_id": "h/1", "prompt": "def f(x):\n", "test": "def check(f):\n    assert f(1)\n", "entry_point": "f",
        "canonical_solution": "    return x\n",
    }  # fmt: skip
    mbpp = {
        "task_id": 2,
        "text": "Write g.",
        "code": "def g(): return 1",
        "test_list": ["assert g() == 1"],
        "test_setup_code": "",
    }
    return [(json.dumps(each) + "\n").encode() for each in (human, mbpp)]


def _updates() -> list[bytes]:
    return ["".join(metrics.UpdateMetrics(step=at, of=9, loss=0.1 * at, more={"x": 1.0}).line() for at in range(5)).encode()]


def _headers() -> list[bytes]:
    with TemporaryDirectory() as folder:
        more = {**ggufs.TINY, "tokenizer.ggml.token_type": [1, 2, 3], "general.flag": True, "qwen2.rope.freq_base": 1e6}
        return [ggufs.gguf(Path(folder, "a"), values).read_bytes() for values in (ggufs.TINY, more)]


def _peft_configs() -> list[bytes]:
    told = {
        "peft_type": "LORA",
        "base_model_name_or_path": "tiny",
        "r": 8,
        "lora_alpha": 16,
        "target_modules": ["q_proj", "v_proj"],
    }
    return [json.dumps(told).encode(), json.dumps({**told, "target_modules": ".*proj"}).encode()]


def _tensors() -> list[bytes]:
    named = {f"model.layers.{at}.q_proj.lora_A.weight": np.ones((4, 8), np.float32) for at in range(2)}
    return [save(named), save(named, {"format": "pt"})]


def _routers() -> list[bytes]:
    """One that was fitted, in a process of its own: what that takes is not loaded here."""

    def fitted(path: Path) -> str:
        from journeyman.optimizers.router.fit import fit
        from tests.optimizers.router.worlds import QUICK, questions

        predict.save(fit(*questions(), QUICK, embedder="hashing:64"), path)
        return base64.b64encode(path.read_bytes()).decode()

    with TemporaryDirectory() as folder:
        said, wrong = asked(Path(folder), lambda: fitted(Path(folder, "router.safetensors")), 120)
    if wrong:
        raise RuntimeError(f"there is no router to break: {wrong}")
    return [base64.b64decode(said), *_tensors()]


_SEALTOOLS = b'{"id": 1, "request": "find and book", "tools": ["find", "book"], "links": [[0, 1]]}\n' * 3
_TOOL_GRAPH = (
    b'{"user_request": "find and book", "task_nodes": [{"task": "find"}, {"task": "book"}], '
    b'"task_links": [{"source": "find", "target": "book"}]}\n'
)
_NESTFUL = json.dumps(
    [
        {
            "input": "find and look",
            "output": [
                {"name": "find", "arguments": {"q": "x"}, "label": "$var1"},
                {"name": "look", "arguments": {"at": "$var1.place$"}, "label": "$var2"},
                {"name": "var_result", "arguments": {"all": "$var2$"}},
            ],
        }
    ]
).encode()


def _model_configs() -> list[bytes]:
    told = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 64, "num_hidden_layers": 2,
        "vocab_size": 320,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "max_position_embeddings": 512,
        "rope_theta": 1e4, "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "torch_dtype": "float32",
        "rope_scaling": {"rope_type": "linear", "factor": 2.0},
    }  # fmt: skip
    return [json.dumps(told).encode()]


def _projects() -> list[bytes]:
    own = (
        '[store]\nurl = "a.db"\n[models]\nmodel = "scripted"\n[gate]\n[serve]\nport = 8001\n[record]\ndurable = true\n'
        '[upstreams.local]\nbase_url = "http://127.0.0.1:1/v1"\n'
    )
    return [settings.template().encode(), own.encode(), settings.template().replace("\n# ", "\n").encode()]


# Readers.


@cache
def store_file() -> bytes:
    """A new store: a copy of it is had at once, and making one takes a second."""
    with TemporaryDirectory() as folder:
        open_traces(path := Path(folder, "new.db")).close()
        return path.read_bytes()


@cache
def _store(folder: Path) -> TraceStore:
    """One for each worker."""
    path = folder / "store.db"
    path.write_bytes(store_file())
    return open_traces(path)


def _collected(path: Path) -> None:
    """As `journeyman collect` does: read, taken keys out of, and stored."""
    redactor = Redactor()
    found = [each for each in read(path) if not isinstance(each, Problem)]
    _store(path.parent).add([redactor.trace(each.trace) for each in found])


def _reported(path: Path) -> None:
    """As the gateway does with what an exporter sends."""
    content = path.read_bytes()
    kind = wire.JSON if content[:1] == b"{" else wire.PROTOBUF
    encoding = "gzip" if content[:2] == b"\x1f\x8b" else ""
    for read_batch in (wire.spans, wire.logs):
        try:
            batch = read_batch(content, kind, encoding=encoding)
        except InputError:
            continue
        wire.answer(batch, "traces", kind)
        rows: dict[str, list[SpanRow]] = {}
        for each in batch.spans:
            row = SpanRow(trace_id=each.trace_id, span_id=each.span_id, at=each.at, body=each.body, scope=each.scope)
            rows.setdefault(each.trace_id, []).append(row)
        redactor = Redactor()
        made = [redactor.trace(trace) for trace in spans.traces(rows)]
        store = _store(path.parent)
        store.add_spans([row for some in rows.values() for row in some])
        store.settle({id: len(some) for id, some in rows.items()}, made)


def _exchanged(path: Path) -> None:
    content = path.read_bytes()
    address, _, rest = content.partition(_APART)
    request, _, answer = rest.partition(_APART)
    dialect = dialect_of(address.decode(errors="replace")) or list(Dialect)[len(content) % len(Dialect)]
    given = Exchange(
        id="x", dialect=dialect, request=request, response=answer, status=200, started_at=_AT, seconds=0.1,
        base_url="http://127.0.0.1/v1",
    )  # fmt: skip
    read_exchange(given)


def _planned(path: Path) -> None:
    for line in iter_jsonl(path, json_object):
        plan.tree(plan.read(line.value))


def _exported(path: Path) -> None:
    found = playbook_files.load(path)
    playbook_files.loads_native(playbook_files.dumps(found), "the playbook")


def _adapter(path: Path) -> None:
    """The folder of an adapter, of which the one file is broken and the other sound."""
    for name, made in (
        ("adapter_config.json", _peft_configs),
        ("adapter_model.safetensors", _tensors),
        ("tokenizer.json", lambda: [b"{}"]),
    ):
        beside = path.parent / name
        if name != path.name and not beside.exists():
            beside.write_bytes(made()[0])
    adapters.read_adapter(path.parent)
    if path.suffix == ".safetensors":
        from journeyman.optimizers.weights.gguf.conversion import open_tensors

        path.replace(path.parent / "model.safetensors")
        for name in (tensors := open_tensors(path.parent)).by_name:
            tensors.load(name)


def _model(path: Path) -> None:
    model_shape.find(str(path.parent), {})
    model_shape.read_settings(path.parent)


def _outcomes(path: Path) -> None:
    rows = outcomes.rows_of_files([path])
    outcomes.table(rows)


def _archived(path: Path) -> None:
    if zipfile.is_zipfile(io.BytesIO(path.read_bytes())):
        path = path.replace(path.with_suffix(".eval"))
    _collected(path)


def _header(path: Path) -> None:
    """With what is made of it."""
    header = contents.read_header(path)
    for name in dir(type(header)):
        if isinstance(getattr(type(header), name), property):
            getattr(header, name)


_FORMATS = {
    "chat": ("collect/chat/*", "chat-finetune/*"),
    "sharegpt": ("collect/agentgym/*", "agentgym-webshop/*"),
    "execution-log": ("collect/execution-log/*", ""),
    "inspect": ("collect/inspect/*.gz", "inspect-logs/*.gz"),
    "kayba": ("collect/kayba/*", "kayba-ace/*.jsonl*"),
    "langfuse": ("collect/langfuse/*", "langfuse-traces/*.gz"),
    "langsmith": ("collect/langsmith/*", "langsmith-runs/*.json"),
    "swe-agent": ("collect/swe-agent/*", "swe-agent-trajs/*"),
    "tau-bench": ("tau-bench/*.jsonl", "tau-bench/*"),
    "tau2-bench": ("collect/tau2-bench/*", "tau2-bench/*"),
    "otlp": ("otlp/*.*", "otlp-genai/*"),
}.items()
READERS: tuple[Reader, ...] = (
    *(Reader(name=f"import-{name}", read=_collected, samples=of_files(own, more=full)) for name, (own, full) in _FORMATS),
    Reader(name="import-eval", read=_archived, samples=_inspect_archives),
    Reader(name="checkpoint", read=partial(checkpoints.read, agent="a"), samples=_checkpoints, file="agent.pkl"),
    Reader(name="otlp-wire", read=_reported, samples=lambda: [*of_files("otlp/*.*")(), body(call(1, 1), call(1, 2))]),
    Reader(name="exchange", read=_exchanged, samples=lambda: list(_exchanges())),
    Reader(name="playbook", read=_exported, samples=lambda: [
        playbook_files.dumps(_playbook()).encode(), *of_files("ace-playbooks/*", "kayba-ace/*", more="ace-playbooks/*")()]),
    Reader(name="journal", read=lambda path: journal.replay(path), samples=_journal, mend=_rehashed),
    Reader(name="questions", read=lambda path: questions.custom(str(path)), samples=_questions),
    Reader(name="gsm8k", read=lambda path: questions.gsm8k(str(path)), samples=of_files("gsm8k/*.jsonl", more="gsm8k/t*")),
    Reader(name="code-tasks", read=code.read_tasks, samples=_code_tasks),
    Reader(name="scenarios", read=read_scenarios, samples=lambda: [
        path.read_bytes() for path in sorted((_SOURCE / "tasks/scenarios/builtin").glob("*.yaml"))], file="input.yaml"),
    Reader(name="results", read=compare.read_results, samples=_results),
    Reader(name="settings", read=lambda path: settings.load(path.parent, {}), samples=_projects, file="journeyman.toml"),
    Reader(name="plan", read=_planned, samples=_plans),
    Reader(name="planner-data", read=planner_data.read, samples=_planner_sets),
    Reader(name="planner-worfbench", read=planner_data.worfbench, samples=of_files("worfbench/*.gz", more="plan_worfbench/*")),
    Reader(name="executions", read=lambda path: list(execution_log.read_executions(path)),
           samples=of_files("collect/execution-log/*")),
    Reader(name="outcomes", read=_outcomes, samples=lambda: [
        *of_files("desk_outcomes/*.jsonl", "routellm/*.gz", more="routellm/*")(),
        "".join(f"{json.dumps(line)}\n" for line in routing.lines(8)).encode()]),
    Reader(name="decisions", read=decisions.read, samples=_logged),
    Reader(name="planner-sealtools", read=planner_data.sealtools, samples=lambda: [_SEALTOOLS]),
    Reader(name="planner-tool-graph", read=planner_data.tool_graph, samples=lambda: [_TOOL_GRAPH]),
    Reader(name="planner-nestful", read=planner_data.nestful, samples=lambda: [_NESTFUL]),
    Reader(name="planner-logs", read=lambda path: planner_data.prepare([path]), samples=of_files("collect/execution-log/*")),
    Reader(name="router", read=predict.load, samples=_routers),
    Reader(name="dataset-rows", read=lambda path: list(data_files.read(path)), samples=_dataset_rows, file="rows.jsonl"),
    Reader(name="updates", read=metrics.read, samples=_updates),
    Reader(name="gguf", read=_header, samples=_headers, file="model.gguf"),
    Reader(name="adapter-config", read=_adapter, samples=_peft_configs, file="adapter_config.json"),
    Reader(name="adapter-tensors", read=_adapter, samples=_tensors, file="adapter_model.safetensors"),
    Reader(name="model-config", read=_model, samples=_model_configs, file="config.json"),
)  # fmt: skip


def _broken(path: Path) -> None:
    {b"sound": 1}[path.read_bytes()]


BROKEN = Reader(name="injected", read=_broken, samples=lambda: [b"sound"])
"""One that does what none may do."""
