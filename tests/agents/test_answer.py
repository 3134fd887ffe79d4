"""The one-call agent: what it shows, what it cites, and what its steps record."""

from journeyman.agents.answer import Answer, answer, cited
from journeyman.core.playbook import Bullet
from journeyman.core.task import Task
from journeyman.core.trace import ModelCall
from journeyman.models.base import Dialect, ModelRequest, Reply

SUMS = Bullet(id="b-1", content="Add the numbers\none by one")
SIGNS = Bullet(id="b-12", content="Forget the sign", section="harmful")


class Parrot:
    """Answers with a fixed text and remembers what it was asked."""

    name = "parrot"
    deterministic = True

    def __init__(self, text: str, dialect: Dialect = "full") -> None:
        self.text = text
        self.dialect: Dialect = dialect
        self.requests: list[ModelRequest] = []

    async def complete(self, request: ModelRequest) -> Reply:
        self.requests.append(request)
        return Reply(text=self.text, model="parrot-1", input_tokens=7, output_tokens=3)

    async def close(self) -> None:
        pass


async def test_the_step_records_what_was_shown_and_what_the_reply_says_it_used() -> None:
    agent = Answer(model=Parrot("2 + 2 is 4.\nUsed: b-1\nAnswer: 4"), choose=lambda _: (SUMS, SIGNS))
    [step] = [step async for step in agent.run(Task(id="t", question="2 + 2?"))]
    assert isinstance(step, ModelCall)
    assert (step.shown, step.cited) == (("b-1", "b-12"), ("b-1",))
    assert (step.model, step.input_tokens, step.output_tokens, step.cost) == ("parrot-1", 7, 3, None)


async def test_the_ground_truth_is_not_in_the_prompt() -> None:
    model = Parrot("?")
    agent = Answer(model=model, choose=lambda _: (SUMS,))
    [_] = [step async for step in agent.run(Task(id="t", question="How many?", answer="SECRET-42"))]
    assert "SECRET-42" not in model.requests[0].text


def test_a_bullet_is_one_line_of_the_prompt_and_a_harmful_one_says_avoid() -> None:
    system = answer(Task(id="t", question="?"), (SUMS, SIGNS), "full")[0].content.splitlines()
    assert "[b-1] Add the numbers one by one" in system
    assert "[b-12] avoid: Forget the sign" in system


def test_without_bullets_no_strategies_are_mentioned() -> None:
    assert "strateg" not in answer(Task(id="t", question="?"), (), "full")[0].content.casefold()


def test_the_terse_dialect_is_what_the_embedded_model_was_trained_on() -> None:
    messages = answer(Task(id="t", question="Three mugs."), (Bullet(id="b-1", content="dates: day first"),), "terse")
    assert [(message.role, message.content) for message in messages] == [
        ("system", "reply\n- dates: day first"),
        ("user", "Three mugs."),
    ]


def test_an_id_that_was_not_shown_or_only_begins_alike_is_not_cited() -> None:
    assert cited("**Used:** b-12, b-9\nAnswer: 4", (SUMS, SIGNS)) == ("b-12",)
    assert cited("Answer: b-1", (SUMS,)) == ()
