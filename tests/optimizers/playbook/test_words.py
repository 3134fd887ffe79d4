from dataclasses import replace

from hypothesis import given

from journeyman.core.playbook import Batch, Bullet, Lock, Merge, MoveTo, Playbook, Retire, UpdateBullet, Vote
from journeyman.core.release import Stage
from journeyman.optimizers.playbook.edit import describe, differences
from tests.support.playbooks import PLAYBOOKS

BEFORE = Playbook(bullets=tuple(Bullet(id=f"b-{n}", content=f"Rule {n}.", helpful=4) for n in range(1, 6)))


def test_every_kind_of_change_is_said_in_words() -> None:
    after = BEFORE.apply(
        Batch(
            id="1",
            deltas=(
                UpdateBullet(bullet_id="b-1", content="Rule one."),
                MoveTo(bullet_id="b-1", stage=Stage.PRODUCTION, domain="oslo"),
                Merge(kept="b-2", gone=("b-3",)),
                Retire(bullet_id="b-4", reason="it harms"),
                Vote(bullet_id="b-5", shown=2, helpful=2),
            ),
        ),
        Batch(id="2", deltas=(Lock(bullet_id="b-5"),)),
    )
    after = replace(after, bullets=(*after.bullets, Bullet(id="b-6", content="New.")))
    assert describe(BEFORE, after) == [
        "b-1 was 'Rule 1.' and is now 'Rule one.'",
        "b-1 moved from domain general to oslo, from stage shadow to production",
        "b-2 went from helpful 4 to 8 (+4), support 1 to 2 (+1)",
        "b-3 was merged into b-2",
        "b-4 was retired: it harms",
        "b-5 was locked",
        "b-5 went from shown 0 to 2 (+2), helpful 4 to 6 (+2)",
        "b-6 is new (general, helpful, shadow): 'New.'",
    ]


def test_what_is_gone_and_what_is_back_is_said() -> None:
    retired = replace(BEFORE.bullets[0], retired="it harms")
    before = replace(BEFORE, bullets=(retired, BEFORE.bullets[1]))
    assert describe(before, replace(BEFORE, bullets=BEFORE.bullets[:1])) == [
        "b-1 is used again; it had been retired: it harms",
        "b-2 is gone: 'Rule 2.'",
    ]


@given(PLAYBOOKS)
def test_a_playbook_does_not_differ_from_itself(playbook: Playbook) -> None:
    assert describe(playbook, playbook) == []


@given(PLAYBOOKS)
def test_each_bullet_of_a_playbook_from_nothing_is_new(playbook: Playbook) -> None:
    assert [one.kind for one in differences(Playbook(), playbook)] == ["added"] * len(playbook.bullets)
    assert [one.kind for one in differences(playbook, Playbook())] == ["removed"] * len(playbook.bullets)
