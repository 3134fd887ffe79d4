"""GEPA behind the same loop: at the desk with the embedded model, and on one's own questions with a scripted one."""

import json
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.errors import InputError
from journeyman.experiments.playbook.training import create_offline_trainer

pytest.importorskip("gepa", reason="needs the extra: pip install 'journeyman[gepa]'")

MODEL = """
import json
from journeyman.models.scripted import Scripted

RULE = "Answer in capital letters."

class Shouts(Scripted):
    def __init__(self):
        super().__init__(self.reply, name="shouts")

    def reply(self, request):
        text = "\\n".join(message.content for message in request.messages)
        if request.schema is not None:
            right = {"verdict": "helpful", "content": RULE, "about": "letters"}
            return json.dumps({"insights": [right], "shown": []})
        word = request.messages[-1].content.split()[-1]
        return f"Answer: {word.upper() if RULE in text else 'unknown'}"
"""


@pytest.fixture
def questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("shouting_model.py").write_text(MODEL)
    path = tmp_path / "questions.json"
    rows = [{"question": f"How is this shouted: word{number}", "answer": f"WORD{number}"} for number in range(90)]
    path.write_text(json.dumps(rows))
    return path


def test_on_questions_of_ones_own_it_learns_what_passes_the_gate(questions: Path) -> None:
    trainer = create_offline_trainer(
        dataset_name="custom",
        input_path=str(questions),
        generator_model="shouting_model:Shouts",
        num_examples=9,
        optimizer="gepa",
    )
    result = trainer.train()
    assert [bullet.content for bullet in result.playbook.active] == ["Answer in capital letters."]
    assert result.evaluation is not None
    assert result.evaluation.passed
    assert result.evaluation.candidate == 1.0
    assert result.metrics.total_examples > 9
    assert result.metrics.progress.reflector.calls > 0
    assert len(result.playbook.trained_on) == 9


def test_what_it_cannot_do_is_said_before_anything_is_asked(questions: Path) -> None:
    known: dict[str, Any] = {"dataset_name": "custom", "input_path": str(questions), "generator_model": "shouting_model:Shouts"}
    with pytest.raises(InputError, match="no optimizer 'gepe'; there are gepa, playbook, and your own as module:Class"):
        create_offline_trainer(**known, optimizer="gepe").begin()
    with pytest.raises(InputError, match="'json:JSONDecoder' is none: it lacks optimize"):
        create_offline_trainer(**known, optimizer="json:JSONDecoder").begin()
    with pytest.raises(InputError, match="GEPA needs at least 2 training tasks"):
        create_offline_trainer(**known, optimizer="gepa", num_examples=1).train()


@pytest.mark.training
def test_at_the_desk_it_evolves_rules_by_the_embedded_reflector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="needs the extra: pip install 'journeyman[embedded]'")
    monkeypatch.chdir(tmp_path)
    result = create_offline_trainer(dataset_name="desk", domain="oslo", num_examples=24, held_out=30, optimizer="gepa").train()
    assert {bullet.about or bullet.content.partition(":")[0] for bullet in result.playbook.active} >= {"dates", "prices"}
    assert result.evaluation is not None
    assert result.evaluation.passed
