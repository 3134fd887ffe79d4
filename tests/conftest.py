"""What holds for every test."""

from hypothesis import settings

# How long an example takes is the business of the machine, and of who else works on it.
settings.register_profile("journeyman", deadline=None)
settings.load_profile("journeyman")
