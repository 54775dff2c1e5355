"""How the rows of a table begin and end: which ids get one, when rows leave, how many there may be.

All of it happens when a window is applied, and whatever is decided depends on the job's seed, the key and the version
alone: not on the number of servers, nor on whether the job was restored meanwhile.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from geartrain.config.section import (
    Expect,
    Float32,
    NonNegativeNumber,
    PositiveInt,
    PositiveNumber,
    Section,
    expected,
)

Share = Annotated[float, Field(gt=0, le=1), Expect("a number > 0 and <= 1"), Float32]
MaxRows = Annotated[int, Field(ge=1, lt=2**32), Expect("an integer >= 1 and < 2^32")]


class AlwaysAdmission(Section):
    """Every id that has a gradient gets a row."""

    type: Literal["always"]


class ProbabilityAdmission(Section):
    """An id without a row gets one with probability `p` in every window that has a gradient for it.

    So it takes 1/p windows in the mean. Nothing is remembered of ids without a row. What is drawn is a hash of seed,
    key and version: it is the same in every run of a job.
    """

    type: Literal["probability"]
    p: Share
    """1 admits every id, as `always`."""


def _power_of_two(value: int) -> int:
    if value & (value - 1):
        raise expected("a power of two from 1 to 256")
    return value


class CountAdmission(Section):
    """An id gets a row in the window in which it has been shown `n` times.

    Shows of ids without a row are counted by a sketch (count-min with four byte counters per id) of `sketch_mb` MiB for
    the whole table, spread over its servers. Ids without a row cost nothing else. The error has two sides:

    - Too early: an id may share all four counters with others. Of ids that were never shown, about 0.1% on average and
      0.5% just before the sketch ages count as shown once already.
    - Too late: the sketch ages, so that it never fills up. When a shard has counted its part of sketch_mb * 65,536
      shows of ids without a row, all its counters are halved. So an id must be shown `n` times among the last 65,536 to
      131,072 * sketch_mb such shows (one to two million for 16); rarer ids stay out. A shard is a
      1,024th of the table and shards fill unevenly, so n may be at most 16 * sketch_mb, a quarter of a
      shard's part; close to that some ids stay out that were shown often enough. Choose sketch_mb so large that a
      single window has far fewer shows.
    """

    type: Literal["count"]
    n: Annotated[int, Field(ge=1, le=255), Expect("an integer from 1 to 255")]
    """Shows that make an id worth a row; 1 admits every id, as `always`."""
    sketch_mb: Annotated[
        int, Field(ge=1, le=256), Expect("a power of two from 1 to 256"), AfterValidator(_power_of_two)
    ] = 16
    """MiB of the counters of the whole table, over all its servers. Memory of a shard is used from its first id on."""

    @model_validator(mode="after")
    def _check_that_it_can_count_so_far(self) -> CountAdmission:
        if self.n > 16 * self.sketch_mb:
            raise expected(
                f"at least {-(-self.n // 16)} for n {self.n}: a smaller sketch forgets ids before", "sketch_mb"
            )
        return self


Admission: TypeAlias = Annotated[AlwaysAdmission | ProbabilityAdmission | CountAdmission, Field(discriminator="type")]


class NeverExpiry(Section):
    """A row stays as long as its table."""

    type: Literal["never"]


class UnseenExpiry(Section):
    """A row leaves when no gradient has reached it for long enough: either in versions (windows) or in passes.

    Each version looks at a part of the table only, so that no window takes long: see `versions` and `passes`.
    """

    type: Literal["unseen"]
    versions: PositiveInt | None = None
    """A row leaves when this many versions have passed since the one that last updated it, or later by up to as many
    again (1,024 at most), as every part of the table is looked at once in that time."""
    passes: Annotated[int, Field(ge=1, le=1000), Expect("an integer from 1 to 1000")] | None = None
    """A row leaves, in the course of a pass, when it was updated neither in this many whole passes before it nor in
    this pass so far. Nothing leaves before so many passes are over."""

    @model_validator(mode="after")
    def _check_one_unit(self) -> UnseenExpiry:
        if (self.versions is None) == (self.passes is None):
            raise expected("exactly one of versions and passes", "versions")
        return self


class ScoreExpiry(Section):
    """A row leaves when its score, show_weight * shows + click_weight * clicks, has become less than `threshold`.

    Every `every_versions` versions each row is looked at once: its shows and clicks are multiplied by `decay`, then its
    score is compared. The statistics that a checkpoint holds, and that eviction by lfu goes by, are the decayed ones.
    """

    type: Literal["score"]
    threshold: PositiveNumber = 1.0
    decay: Share = 0.98
    show_weight: NonNegativeNumber = 1.0
    click_weight: NonNegativeNumber = 1.0
    every_versions: PositiveInt = 1024
    """Versions in which every row is looked at once, a part of the table in each."""

    @model_validator(mode="after")
    def _check_weights(self) -> ScoreExpiry:
        if self.show_weight == self.click_weight == 0:
            raise expected("a number > 0 (click_weight is 0, so every score would be)", "show_weight")
        return self


Expiry: TypeAlias = Annotated[NeverExpiry | UnseenExpiry | ScoreExpiry, Field(discriminator="type")]
Eviction: TypeAlias = Literal["lru", "lfu"]

DEFAULT_ADMISSION = AlwaysAdmission(type="always")
DEFAULT_EXPIRY = NeverExpiry(type="never")
DEFAULT_EVICTION: Eviction = "lru"
