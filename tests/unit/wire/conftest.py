"""`--hypothesis-profile=long` is the fuzz that `make sanitize` runs."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("long", max_examples=500, deadline=None)
