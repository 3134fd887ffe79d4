"""Who is credited with an attempt that went well, and who is blamed for one that did not.

Shown, cited and outcome are three counts. A vote comes from the outcome of an attempt that showed the bullet, never from a
similar insight having been written again.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from math import comb

from journeyman.learn.playbook.conflict import contradicts
from journeyman.playbook import Bullet, Insight, Playbook, Retire, Verdict, Vote
from journeyman.score import Experience


def votes(experiences: Sequence[Experience], playbook: Playbook, insights: Sequence[Insight]) -> tuple[Vote, ...]:
    """One vote a bullet, over all the attempts, in the order of ids.

    Solved: helpful for the bullets that were cited, or for all that were shown where none was. Failed: harmful for those
    alone that an insight from the same attempt calls harmful, or contradicts; a failure that no rule caused is no rule's
    fault. Unknown outcome: shown, and no more. Locked and unknown bullets get no votes.
    """
    bullets = {bullet.id: bullet for bullet in playbook.bullets if not bullet.locked}
    drawn: defaultdict[str, list[Insight]] = defaultdict(list)
    for insight in insights:
        for trace_id in insight.trace_ids:
            drawn[trace_id].append(insight)
    counts = Counter(
        (id, count)
        for experience in experiences
        for id, count in _counted(experience, bullets, drawn[experience.trace.id])
        if id in bullets
    )
    return tuple(
        Vote(
            bullet_id=id,
            shown=counts[id, "shown"],
            cited=counts[id, "cited"],
            helpful=counts[id, "helpful"],
            harmful=counts[id, "harmful"],
        )
        for id in sorted({id for id, _ in counts})
    )


def _counted(experience: Experience, bullets: dict[str, Bullet], drawn: Sequence[Insight]) -> Iterator[tuple[str, str]]:
    shown = experience.trace.shown
    # A model may cite what it was never shown; that is no use of it.
    cited = experience.trace.cited & shown
    yield from ((id, "shown") for id in shown)
    yield from ((id, "cited") for id in cited)
    if experience.solved:
        yield from ((id, "helpful") for id in cited or shown)
    elif experience.solved is False:
        yield from ((id, "harmful") for id in shown if id in bullets and _blamed(bullets[id], drawn))


def _blamed(bullet: Bullet, drawn: Sequence[Insight]) -> bool:
    return any(
        (insight.section == Verdict.HARMFUL and bullet.id in insight.concerns) or contradicts(insight, bullet)
        for insight in drawn
    )


LEAST_HARM = 3
"""Harmful votes without which nothing is retired."""
CERTAINTY = 0.95


def chance_of_harm(helpful: int, harmful: int) -> float:
    """The chance that the bullet's true rate of going well is below one half, given its votes.

    The rate is Beta(1 + helpful, 1 + harmful): a uniform prior (Gelman et al., Bayesian Data Analysis, 3rd ed., section 2.1).
    For whole numbers its distribution function at one half is a sum of binomials (Abramowitz and Stegun, 26.5.24).
    """
    trials = helpful + harmful + 1
    return sum(comb(trials, wins) for wins in range(helpful + 1, trials + 1)) / (1 << trials)


def to_retire(playbook: Playbook) -> tuple[Retire, ...]:
    """The bullets that do harm: at least 3 harmful votes, and 95 % sure that they harm more often than they help."""
    return tuple(
        Retire(
            bullet_id=bullet.id,
            reason=f"{bullet.harmful} harmful votes against {bullet.helpful} helpful: {chance:.1%} sure it harms",
        )
        for bullet in playbook.active
        if not bullet.locked and bullet.harmful >= LEAST_HARM and bullet.harmful > bullet.helpful
        if (chance := chance_of_harm(bullet.helpful, bullet.harmful)) > CERTAINTY
    )
