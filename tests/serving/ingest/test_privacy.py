"""What must not be kept is nowhere: not in the database, its log, the spill file, or what the program says."""

import json
import logging
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from journeyman.serving.ingest.base import RecordCleaner
from journeyman.serving.ingest.factory import _read_spans as read_spans
from journeyman.serving.ingest.writer import StoreIntake
from journeyman.stores.traces import open_traces
from journeyman.tracing.redaction import Redactor
from journeyman.tracing.wire.assembler import ConversationAssembler
from journeyman.tracing.wire.dialects import Exchange
from tests.serving.ingest.test_spill import made
from tests.serving.ingest.test_writer import SOON, Start, exchange, until
from tests.support.secrets import planted
from tests.support.spans import call, rows


def opened(start: Start, *, content: bool = True) -> StoreIntake:
    joiner = ConversationAssembler(price=lambda url, model, usage: None)
    cleaner = RecordCleaner(redactor=Redactor(), content=content, read=lambda each: (joiner.join(each),))
    return StoreIntake(lambda: open_traces(start.file), cleaner=cleaner, read_spans=read_spans, spill=start.spill)


def streamed(number: int, text: str) -> Exchange:
    """An answer that comes in pieces of a few letters, so that no piece holds the whole secret."""
    chunks = [text[at : at + 5] for at in range(0, len(text), 5)]
    lines = [
        {"id": f"s{number}", "model": "m", "choices": [{"index": 0, "delta": {"role": "assistant", "content": chunk}}]}
        for chunk in chunks
    ]
    body = "".join(f"data: {json.dumps(line)}\n\n" for line in lines) + "data: [DONE]\n\n"
    return replace(exchange(1000 + number), response=body.encode(), streamed=True)


def everything(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())


@pytest.mark.parametrize("gone", [False, True], ids=["stored", "spilled"])
@pytest.mark.parametrize("content", [True, False], ids=["content", "shapes"])
def test_no_planted_secret_is_on_the_disk_or_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, gone: bool, content: bool
) -> None:
    caplog.set_level(logging.DEBUG)
    start = Start(tmp_path / "kept")
    blocker = tmp_path / "kept" / "folder"
    if gone:
        blocker.parent.mkdir()
        blocker.write_text("")
        start.file = blocker / "journeyman.db"
    secrets = planted(11)
    intake = opened(start, content=content)
    for number, (text, _) in enumerate(secrets.values()):
        intake.submit(exchange(number, said=text, reply=text))
        intake.submit(streamed(number, text))
        intake.add(made(f"own {number}", reply=text, result=text))
        intake.spans(rows(call(number + 1, 1, text, **{"http.request.header.authorization": text})))
    if gone:
        until(lambda: intake.health().spilled == 3 * len(secrets))
        stored = everything(start.spill)
        texts = [repr(trace) for trace in intake._pipe._spill.first(1000).found]
    else:
        assert intake.flush(SOON)
        stored = everything(tmp_path / "kept")
        texts = [repr(trace) for trace in start.traces()]
        assert len(texts) == 4 * len(secrets)
        with open_traces(start.file) as store:
            raw = store.spans([f"{number + 1:032x}" for number in range(len(secrets))])
        texts += [row.body.decode("latin-1") for found in raw.values() for row in found]
        assert len(texts) == 5 * len(secrets)
    intake.close(timeout=0.1)
    found = "\n".join(texts)
    for kind, (_, secret) in secrets.items():
        assert secret not in found, kind
        assert secret.encode() not in stored, kind
        assert secret not in caplog.text, kind
    assert ("[redacted" in found) is content


def test_without_content_only_shapes_reach_the_disk(tmp_path: Path) -> None:
    start = Start(tmp_path)
    words = "the quick brown fox"
    with closing(opened(start, content=False)) as intake:
        intake.submit(exchange(1, said=words, reply=words))
        intake.add(made("own", reply=words, result=words))
        intake.spans(rows(call(1, 1, words))).result(SOON)
        assert intake.flush(SOON)
        assert words.encode() not in everything(tmp_path)
        traces = start.traces()
    assert len(traces) == 3
    assert "fox" not in repr(traces)
    assert {each.model for trace in traces for each in trace.calls} == {"gpt-4o-mini", "m"}
    assert {each.input_tokens for trace in traces for each in trace.calls} == {9, 10, None}
    said = {each.reply for trace in traces for each in trace.calls}
    assert said == {f"[{len(words)} characters]", ""}, "of a span's text only the length is kept, under a name of its own"


def test_a_conversation_that_grows_is_clean_at_each_length(tmp_path: Path) -> None:
    secrets = list(planted(5).values())
    steps = [made("x", reply=text, result=text).steps for text, _ in secrets]
    cleaner = RecordCleaner(redactor=Redactor(), read=lambda each: ())
    for length in (1, 2, 5, 5, 9, len(steps)):
        trace = replace(made("x"), steps=tuple(step for pair in steps[:length] for step in pair))
        clean = cleaner.trace(trace)
        assert clean == Redactor().trace(trace)
        assert [secret for _, secret in secrets if secret in repr(clean)] == []
