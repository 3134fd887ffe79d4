import pytest

from journeyman.core.errors import InputError
from journeyman.core.playbook import Batch, Bullet, Merge, Playbook
from journeyman.models.embedders import HashingEmbedder
from journeyman.optimizers.playbook import files
from journeyman.optimizers.playbook.edit import duplicates, superfluous
from tests.support.playbooks import DATA, real, unpacked

EMBEDDER = HashingEmbedder()
LONG = "Always write the date of an order as year, month and day before you send it to the shop"


def playbook(*bullets: Bullet) -> Playbook:
    return Playbook(bullets=bullets)


def test_copies_are_merged_into_the_oldest() -> None:
    found = duplicates(
        playbook(
            Bullet(id="1", content="Use cents."),
            Bullet(id="2", content="use  CENTS"),
            Bullet(id="3", content=f"{LONG}."),
            Bullet(id="4", content=f"{LONG}, please."),
            Bullet(id="5", content=f"{LONG}, please"),
        ),
        EMBEDDER,
    )
    assert found.merges == (Merge(kept="1", gone=("2",)), Merge(kept="3", gone=("4", "5")))
    assert (found.exact, found.near, found.kept_apart) == (2, 1, 0)


@pytest.mark.parametrize(
    "other",
    [
        Bullet(id="2", content=LONG, domain="rome"),
        Bullet(id="2", content=LONG, section="harmful"),
        Bullet(id="2", content=LONG, locked=True),
        Bullet(id="2", content=LONG, retired="old"),
        Bullet(id="2", content=LONG.replace("Always", "Never")),
        Bullet(id="2", content=f"{LONG} 24"),
    ],
)
def test_what_says_something_else_is_kept_apart(other: Bullet) -> None:
    assert duplicates(playbook(Bullet(id="1", content=LONG), other), EMBEDDER).merges == ()


def test_nothing_is_left_to_merge_after_merging() -> None:
    before = files.loads(unpacked(DATA / "ace-playbooks" / "appworld_offline_trained_no_gt_playbook.txt.gz"))
    found = duplicates(before, EMBEDDER)
    assert (found.exact, found.near) == (8, 28)
    after = before.apply(Batch(id="1", deltas=found.merges))
    assert len(after.active) == len(before.active) - 36
    assert duplicates(after, EMBEDDER).merges == ()


def test_the_copies_in_the_published_playbook_are_found() -> None:
    found = duplicates(files.loads(unpacked(real("ace-playbooks/appworld_online_trained_playbook.txt.gz"))), EMBEDDER)
    assert found.exact == 22


@pytest.mark.parametrize("threshold", [0, -1, 1.1])
def test_a_threshold_that_cannot_be_is_refused(threshold: float) -> None:
    with pytest.raises(InputError, match="threshold"):
        duplicates(Playbook(), EMBEDDER, threshold)


BULLETS = playbook(
    Bullet(id="good", content="a", helpful=9, harmful=1),
    Bullet(id="unknown", content="b"),
    Bullet(id="supported", content="c", support=3),
    Bullet(id="bad", content="d", harmful=6),
    Bullet(id="locked", content="e", harmful=6, locked=True),
    Bullet(id="poor", content="f", helpful=1, harmful=2),
    Bullet(id="old", content="g", harmful=6, retired="old"),
)


def retired(**options: object) -> list[str]:
    return [retire.bullet_id for retire in superfluous(BULLETS, **options)]  # type: ignore[arg-type]


def test_harmful_bullets_are_retired_by_the_rule_that_training_has() -> None:
    assert retired(harmful=True) == ["bad"]


def test_only_voted_bullets_have_a_confidence_to_be_judged_by() -> None:
    assert retired(min_confidence=0.6) == ["bad", "poor"]
    (first, _) = superfluous(BULLETS, min_confidence=0.6)
    assert first.reason == "confidence 0.12 is below 0.6 (0 helpful, 6 harmful)"


def test_the_weakest_go_when_there_are_too_many() -> None:
    assert retired(max_bullets=4) == ["bad", "poor"]
    assert retired(max_bullets=3) == ["unknown", "bad", "poor"]
    assert retired(max_bullets=0) == ["good", "unknown", "supported", "bad", "poor"]
    assert retired(max_bullets=10) == retired() == []
