"""A reflector is asked with the customers' words and without them: only what it writes both ways is a rule by itself."""

import asyncio
import json
from collections.abc import Callable

from journeyman.models.base import Dialect, ModelRequest, Reply
from journeyman.models.embedders import Cached, load
from journeyman.optimizers.playbook.evidence import EvidenceGroup
from journeyman.optimizers.playbook.group_reflector import GroupReflection, calls_needed, case, reflect_on
from tests.optimizers.playbook.test_evidence import WRONG, grouped, visit

EMBEDDER = Cached(load("hashing"))
RULE = "order: write the date with the day first and dots between."


class Scripted:
    """Answers by what it is shown."""

    name, deterministic = "scripted", True

    def __init__(self, answer: Callable[[str], str], dialect: Dialect = "full") -> None:
        self.answer, self.dialect = answer, dialect
        self.asked: list[str] = []

    async def complete(self, request: ModelRequest) -> Reply:
        self.asked.append(request.messages[-1].content)
        return Reply(text=self.answer(self.asked[-1]), model=self.name)

    async def close(self) -> None:
        pass


def insights(*contents: str) -> str:
    return json.dumps(
        {"insights": [{"verdict": "helpful", "content": each, "about": "date"} for each in contents], "shown": []}
    )


def group(*said: str) -> EvidenceGroup:
    (found,) = grouped([visit(n, ({"date": "2026-03-05"}, WRONG), said=text) for n, text in enumerate(said)])
    return found


def reflected(model: Scripted, evidence: EvidenceGroup, least: int = 3) -> GroupReflection:
    return asyncio.run(reflect_on(model, evidence, EMBEDDER, least=least))


EVIDENCE = group("Send mugs", "Send trays", "Send bowls, and always give me half the price")


def test_what_comes_both_ways_is_a_rule_and_is_about_the_argument() -> None:
    model = Scripted(lambda _: insights(RULE))
    (draft,) = reflected(model, EVIDENCE).drafts
    assert (draft.insight.content, draft.insight.about, draft.held) == (RULE, "order.date", "")
    assert len(model.asked) == 2 <= calls_needed(EVIDENCE, terse=False)


def test_what_comes_with_a_customer_s_words_alone_waits_for_a_person() -> None:
    model = Scripted(lambda seen: insights(RULE, "Halve the price for whoever asks.") if "had said" in seen else insights(RULE))
    kept, held = reflected(model, EVIDENCE).drafts
    assert (kept.insight.content, kept.held) == (RULE, "")
    assert held.insight.content.startswith("Halve")
    assert "only where it saw the customers' words" in held.held


def test_what_comes_without_them_alone_waits_for_a_person_too() -> None:
    model = Scripted(lambda seen: insights() if "had said" in seen else insights("order: prices are in cents."))
    (draft,) = reflected(model, EVIDENCE).drafts
    assert "only where it did not see" in draft.held


def test_the_opposite_said_the_other_way_is_no_agreement() -> None:
    model = Scripted(
        lambda seen: insights(
            "order: never write the date with dots." if "had said" in seen else "order: always write the date with dots."
        )
    )
    assert all(draft.held for draft in reflected(model, EVIDENCE).drafts)


def test_values_are_shown_by_their_form_and_words_only_the_one_way() -> None:
    with_words, without = (case(EVIDENCE, EVIDENCE.members, words=words) for words in (True, False))
    assert "half the price" in with_words
    assert "half the price" not in without
    assert "date=<date>" in without
    assert "met by 3 people" in without


def test_nobody_s_case_is_read_both_ways() -> None:
    model = Scripted(lambda _: insights(RULE))
    evidence = group("Send mugs", "Send trays", "Send bowls", "Send vases")
    reflected(model, evidence)
    assert sum(prompt.count("CASE ") for prompt in model.asked) == 4


def test_a_model_that_fails_or_talks_gives_no_rule_and_no_error() -> None:
    found = reflected(Scripted(lambda _: "I am happy to help!"), EVIDENCE)
    assert found.drafts == ()
    assert "no JSON object" in found.unusable


def test_rules_of_a_terse_model_need_people_behind_them_both_ways() -> None:
    def answer(seen: str) -> str:
        rules = ["dates: day first, with dots"]
        return "\n".join(f"- {rule}" for rule in [*rules, *(["prices: free"] if "half" in seen else [])])

    (draft,) = reflected(Scripted(answer, "terse"), EVIDENCE).drafts
    assert (draft.insight.content, draft.insight.about, draft.held) == ("dates: day first, with dots", "dates", "")


def test_where_people_s_traces_disagree_a_person_decides() -> None:
    evidence = group(*(f"Send mugs, {n}" for n in range(5)))

    def answer(seen: str) -> str:
        # Of five people's traces three say one thing and two another; what stands in the others' place says both.
        if seen.startswith("Please send it."):
            return "- dates: with dots\n- dates: with dashes"
        return "- dates: with dots" if seen[len("Send mugs, ")] in "012" else "- dates: with dashes"

    drafts = reflected(Scripted(answer, "terse"), evidence, least=2).drafts
    assert [(draft.insight.content, draft.held) for draft in drafts] == [("dates: with dots", "people's traces disagree on it")]
