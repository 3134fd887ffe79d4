"""What holds for every test."""

from hypothesis import HealthCheck, settings

# How long an example takes, to make or to try, is the business of the machine, and of who else works on it.
settings.register_profile("journeyman", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("journeyman")
