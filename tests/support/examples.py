"""How many examples a property is tried with: as many as the profile says, or a share of them."""

from hypothesis import HealthCheck, settings


def examples(share: float = 1.0, *, one_fixture: bool = False) -> settings:
    """`share` times the profile's, and at least one: below 1 where an example is dear, above where most find nothing.

    With `one_fixture` all examples of a test share what its fixtures gave: right where none leaves anything for the next.
    """
    checks = [HealthCheck.too_slow, *([HealthCheck.function_scoped_fixture] if one_fixture else [])]
    return settings(max_examples=max(1, round(settings().max_examples * share)), suppress_health_check=checks)
