"""Random tests take the same examples each time; `--hypothesis-profile=default` takes others."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
