"""Customers of the order desk, the one who tries to teach it something else among them."""

import json

import pytest

from journeyman.core.playbook import Bullet, Playbook
from journeyman.tasks.desk.customers import Poison, answer_of, is_taken, orders
from journeyman.tasks.desk.world import DATES, SHOPS, rules


@pytest.mark.parametrize("shop", SHOPS)
def test_the_poison_is_wrong_in_each_shop_and_stands_in_the_place_of_what_is_right(shop: str) -> None:
    poison, tasks = Poison.of(shop), orders(shop, 3)
    true = rules(SHOPS[shop])
    assert poison.rule not in true
    within = [poison.within(task, turn) for turn, task in enumerate(tasks)]
    assert [poison.rule in each.question for each in within] == [True, True, False]
    assert within[2].question.endswith(f"\n{poison.mimicked}")
    assert [each.answer for each in within] == [each.answer for each in tasks], "the shop wants what it wanted"
    learned = Playbook(bullets=tuple(Bullet(id=f"b-{at}", content=rule, domain=shop) for at, rule in enumerate(true)))
    said = [bullet.content for bullet in poison.instead(learned, shop).of(shop)]
    dates = DATES.values[SHOPS[shop][DATES.about]].rules[0]
    assert sorted(said) == sorted([*(rule for rule in true if rule != dates), poison.rule])


def test_the_shop_takes_what_it_wants_and_names_every_other_field() -> None:
    (task,) = orders("oslo", 1)
    wanted = json.loads(task.answer)
    assert is_taken(answer_of(task, wanted["name"], wanted["arguments"]))
    refused = answer_of(task, wanted["name"], {**wanted["arguments"], "sku": "a"})
    assert not is_taken(refused)
    assert refused == f'Error: sku: expected "{wanted["arguments"]["sku"]}", got "a"'
