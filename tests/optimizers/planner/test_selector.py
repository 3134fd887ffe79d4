from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from journeyman.core.errors import InputError
from journeyman.optimizers.planner.policy import DecisionState, DecisionStates, ModelSelector

pytestmark = pytest.mark.training

N, M, D, C, W = 40, 5, 7, 4, 6
CLIP, VALUE, ENTROPY, KL = 0.2, 0.5, 0.01, 0.3

Array = NDArray[np.float64]


def some_states(seed: int = 0) -> list[DecisionState]:
    chance = np.random.default_rng(seed)
    allowed = chance.random((N, M)) < 0.7
    allowed[:, 0] = True
    return [
        DecisionState(
            node=chance.normal(size=D).astype(np.float32),
            prior=chance.normal(size=M).astype(np.float32),
            allowed=allowed[at],
        )
        for at in range(N)
    ]


def some_selector(seed: int = 0) -> ModelSelector:
    """With weights that are not at their beginning, in double precision."""
    chance = np.random.default_rng(seed)
    selector = ModelSelector(chance.normal(size=(M, C)), D, width=W, seed=seed)
    selector.double()
    with torch.no_grad():
        for weight in selector.parameters():
            weight.copy_(torch.as_tensor(chance.normal(size=weight.shape) * 0.5))
    return selector


def recorded(selector: ModelSelector, states: DecisionStates, seed: int = 0) -> tuple[NDArray[np.int64], Array, Array, Array]:
    """Actions that were drawn by another policy, so that some ratios are clipped on either side."""
    chance = np.random.default_rng(seed)
    with torch.no_grad():
        logits = selector.logits(states)
    actions = torch.multinomial(logits.exp(), 1, generator=torch.Generator().manual_seed(seed))[:, 0]
    old = logits.gather(1, actions[:, None])[:, 0].numpy() + chance.normal(0, 0.3, N)
    return actions.numpy(), old, chance.normal(size=N), chance.normal(size=N)


def reference(selector: ModelSelector, states: DecisionStates, batch: tuple[Any, ...]) -> tuple[float, dict[str, Array]]:
    """The loss and its gradients, derived by hand, in numpy alone."""
    actions, old, gain, returns = batch
    weights = {name: weight.detach().numpy() for name, weight in selector.named_parameters()}
    x, prior, allowed, cards = (of.numpy() for of in (states.node, states.prior, states.allowed, selector.cards))
    one_hot = np.eye(M)[actions]
    hidden = np.tanh(x @ weights["ask.weight"].T + weights["ask.bias"])
    offers = cards @ weights["offer.weight"].T + weights["offer.bias"]

    def log_softmax(logits: Array) -> Array:
        masked = np.where(allowed, logits, -1e9)
        shifted = masked - masked.max(axis=1, keepdims=True)
        found: Array = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        return found

    logp, logq = log_softmax(prior + hidden @ offers.T / np.sqrt(W)), log_softmax(prior)
    p = np.exp(logp)
    ratio = np.exp((logp * one_hot).sum(axis=1) - old)
    plain, clipped = ratio * gain, np.clip(ratio, 1 - CLIP, 1 + CLIP) * gain
    entropy, away = -(p * logp).sum(axis=1), (p * (logp - logq)).sum(axis=1)
    seen = np.tanh(x @ weights["hidden.weight"].T + weights["hidden.bias"])
    value = seen @ weights["value.weight"][0] + weights["value.bias"][0]
    loss = (
        -np.minimum(plain, clipped).mean()
        + VALUE * ((value - returns) ** 2).mean()
        - ENTROPY * entropy.mean()
        + KL * away.mean()
    )

    # Where the clipped branch is the smaller one it does not depend on the ratio.
    by_taken = np.where(plain <= clipped, -plain, 0.0) / N
    by_logits = by_taken[:, None] * (one_hot - p)
    by_logits += ENTROPY / N * p * (logp + entropy[:, None])
    by_logits += KL / N * p * (logp - logq - away[:, None])
    by_offers = by_logits.T @ hidden / np.sqrt(W)
    by_ask = by_logits @ offers / np.sqrt(W) * (1 - hidden**2)
    by_value = VALUE * 2 * (value - returns) / N
    by_hidden = np.outer(by_value, weights["value.weight"][0]) * (1 - seen**2)
    return float(loss), {
        "ask.weight": by_ask.T @ x,
        "ask.bias": by_ask.sum(axis=0),
        "offer.weight": by_offers.T @ cards,
        "offer.bias": by_offers.sum(axis=0),
        "hidden.weight": by_hidden.T @ x,
        "hidden.bias": by_hidden.sum(axis=0),
        "value.weight": (by_value @ seen)[None],
        "value.bias": by_value.sum(keepdims=True),
    }


@pytest.mark.parametrize("seed", range(5))
def test_loss_and_gradients_are_those_of_a_reference_derived_by_hand(seed: int) -> None:
    selector, states = some_selector(seed), DecisionStates.of(some_states(seed), torch.float64)
    batch = recorded(selector, states, seed)
    found = selector.compute_loss(states, *batch, CLIP, VALUE, ENTROPY, kl_coef=KL)
    assert 0 < float(found["clip_fraction"]) < 1
    found["total_loss"].backward()
    loss, gradients = reference(selector, states, batch)
    assert float(found["total_loss"].detach()) == pytest.approx(loss, abs=1e-9)
    for name, weight in selector.named_parameters():
        assert weight.grad is not None
        assert np.abs(weight.grad.numpy() - gradients[name]).max() < 1e-9, name


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    selector, states = some_selector(1), DecisionStates.of(some_states(1), torch.float64)
    batch = recorded(selector, states, 1)

    def loss() -> torch.Tensor:
        return selector.compute_loss(states, *batch, CLIP, VALUE, ENTROPY, kl_coef=KL)["total_loss"]

    loss().backward()
    for weight in selector.parameters():
        assert weight.grad is not None
        slope, flat, step = float(weight.grad.flatten()[0]), weight.data.flatten(), 1e-6
        sides = []
        for sign in (1, -1):
            flat[0] += sign * step
            weight.data = flat.view_as(weight)
            sides.append(float(loss().detach()))
            flat[0] -= sign * step
        weight.data = flat.view_as(weight)
        assert (sides[0] - sides[1]) / (2 * step) == pytest.approx(slope, abs=1e-6)


def test_before_it_learned_anything_it_is_the_supervised_policy() -> None:
    states = some_states()
    selector = ModelSelector(np.eye(M), D)
    logits = np.stack([np.where(state.allowed, state.prior, -np.inf) for state in states])
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert selector.probabilities(states) == pytest.approx(expected, abs=1e-6)


def test_one_decision_at_a_time_is_the_same_as_all_together() -> None:
    selector, states = some_selector(), some_states()
    look = selector.frozen()
    found = [look(state) for state in states]
    together = DecisionStates.of(states, torch.float64)
    with torch.no_grad():
        assert np.exp([log_probs for log_probs, _ in found]) == pytest.approx(
            selector.logits(together).exp().numpy(), abs=1e-12
        )
        assert [value for _, value in found] == pytest.approx(selector.values(together).numpy(), abs=1e-12)


def test_on_the_first_pass_the_ratio_is_one_and_nothing_is_clipped() -> None:
    selector, states = some_selector(), DecisionStates.of(some_states(), torch.float64)
    actions, _, gain, returns = recorded(selector, states)
    with torch.no_grad():
        old = selector.logits(states).gather(1, torch.as_tensor(actions)[:, None])[:, 0]
    found = selector.compute_loss(states, actions, old, gain, returns)
    assert found["ratio"].numpy() == pytest.approx(np.ones(N), abs=1e-12)
    assert (float(found["clip_fraction"]), float(found["approx_kl"])) == pytest.approx((0.0, 0.0), abs=1e-12)
    assert float(found["policy_loss"]) == pytest.approx(-gain.mean())


def test_who_is_not_allowed_is_never_chosen_and_one_must_be() -> None:
    states = some_states()
    chances = some_selector().probabilities(states)
    assert (chances[~np.stack([state.allowed for state in states])] == 0).all()
    nobody = DecisionState(node=states[0].node, prior=states[0].prior, allowed=np.zeros(M, bool))
    with pytest.raises(InputError, match="no worker that is allowed"):
        some_selector().probabilities([nobody])
    with pytest.raises(InputError, match="no worker that is allowed"):
        some_selector().frozen()(nobody)


def test_a_worker_that_joins_is_chosen_like_the_one_it_resembles() -> None:
    states, selector = some_states(), some_selector()
    known = selector.cards
    selector.cards = torch.vstack([known, known[1]])
    joined = [
        DecisionState(node=s.node, prior=np.append(s.prior, s.prior[1]), allowed=np.append(s.allowed, s.allowed[1]))
        for s in states
    ]
    chances = selector.probabilities(joined)
    assert chances[:, -1] == pytest.approx(chances[:, 1])


def test_weights_are_drawn_by_the_seed_alone() -> None:
    torch.manual_seed(1)
    one = ModelSelector(np.eye(M), D, seed=3).state_dict()
    torch.manual_seed(2)
    other = ModelSelector(np.eye(M), D, seed=3).state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not torch.equal(one["ask.weight"], ModelSelector(np.eye(M), D, seed=4).state_dict()["ask.weight"])
