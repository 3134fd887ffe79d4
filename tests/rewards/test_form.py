import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.rewards.static import FormatComplianceReward, xml_fault
from tests.support.traces import done, said, used

REWARD = FormatComplianceReward()


@pytest.mark.parametrize(
    "reply",
    ["plain", "1 < 2 and 3 > 2", "a List<int> of them", "use `<b>x</b>` here", "```html\n<b>x</b>\n```", "mail <me@x.org>"],
)
def test_text_without_tags_complies(reply: str) -> None:
    assert REWARD.compute(said(reply)).score == 1.0


@pytest.mark.parametrize("reply", ["<answer>4</answer>", "x <br/> y", '<a href="x">\ny</a>', "<ns:t>\n</ns:t>"])
def test_tags_of_xml_do_not(reply: str) -> None:
    found = REWARD.compute(said(reply))
    assert (found.score, found.is_binary) == (0.0, True)
    assert "XML tag" in found.details["evidence"]


@pytest.mark.parametrize("reply", ["# Title", "**bold**", "```py\nx\n```", "> quoted", "| a | b |", "<b>x</b>"])
def test_plain_text_has_no_mark_up(reply: str) -> None:
    reward = FormatComplianceReward(form="plain")
    assert reward.compute(said(reply)).score == 0.0
    assert reward.compute(said("Only words, 2 * 3 * 4, and a list:\n- one\n- two")).score == 1.0


@pytest.mark.parametrize(("reply", "score"), [('{"a": 1}', 1), ("```json\n[1]\n```\n", 1), ("Here: {}", 0), ("{} {}", 0)])
def test_json_is_one_value_and_nothing_else(reply: str, score: float) -> None:
    assert FormatComplianceReward(form="json").compute(said(reply)).score == score


def test_a_pattern_must_match_as_well() -> None:
    reward = FormatComplianceReward(pattern=r"(?s)\A.*####\s*\d+\Z")
    assert reward.compute(said("so\n#### 42")).score == 1.0
    assert reward.compute(said("42")).score == 0.0


@pytest.mark.parametrize("trace", [done(), done(used("a")), said("words", "")])
def test_without_a_last_reply_it_is_unknown(trace: object) -> None:
    assert REWARD.compute(trace).score is None  # type: ignore[arg-type]


@given(st.text(alphabet="<>/ab`~ \n\"='", max_size=200))
def test_any_text_can_be_looked_at(text: str) -> None:
    assert isinstance(xml_fault(text), str)
