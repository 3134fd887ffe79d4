"""How much a label weighs in the loss of KTO, so that neither side drowns the other."""

from journeyman.errors import InputError


def weights(good: int, bad: int, *, desirable: float | None = None, undesirable: float | None = None) -> tuple[float, float]:
    """Weights of desirable and undesirable completions in the loss of KTO, by their numbers.

    What is `None` is chosen so that neither side drowns the other: n_D·w_D : n_U·w_U is to lie between 1:1 and 4:3
    (Ethayarajh et al. 2024, arXiv 2402.01306, equation 8). Where it does with equal weights, they are 1; otherwise the side
    with fewer rows is raised to 1:1, and the other stays 1.

    Raises:
        InputError: One side has no rows: KTO learns from the contrast.
    """
    if not good or not bad:
        which = "good" if not good else "bad"
        raise InputError(f"KTO learns from good and bad completions alike, and none of {good + bad} rows is labelled {which}")
    if desirable is not None and undesirable is not None:
        return desirable, undesirable
    if desirable is not None:
        return desirable, desirable * good / bad
    if undesirable is not None:
        return undesirable * bad / good, undesirable
    if bad <= good <= bad * 4 / 3:
        return 1.0, 1.0
    return max(1.0, bad / good), max(1.0, good / bad)
