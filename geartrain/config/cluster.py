"""What concerns the cluster rather than the model: compression, portraits, routing, checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from geartrain.config.section import Expect, PositiveInt, PositiveNumber, Section, within_int64
from geartrain.errors import ConfigError

MAX_LISTED = 8
"""Workers that an error lists by name."""


class CompressionConfig(Section):
    """How rows and gradients are encoded on the wire. Servers keep rows and sum gradients as they do without."""

    embedding: Literal["auto", "fp32", "fp16", "bf16", "int8"] = "auto"
    """Of the rows that workers pull, also to evaluate, and of the gradients that they push; int8 has a range per row.
    auto: fp32, for as long as the speed of links is not measured."""
    dense: Literal["auto", "fp32"] = "fp32"
    error_feedback: bool = True
    """Whether what a lossy encoding leaves out of dense gradients is added to the next step; fp32 leaves nothing out,
    and gradients of rows have no next step of their own."""

    @property
    def row_codec(self) -> str:
        """What `embedding` means now, one of `kernels.wire_codec.CODECS`."""
        return "fp32" if self.embedding == "auto" else self.embedding


class InitialPortrait(Section):
    """The speed that a worker is taken to have in the beginning, whatever its probes tell; its steps correct it."""

    samples_per_s: PositiveNumber


class PortraitConfig(Section):
    """How workers are measured, before a job trains and while it does. All of it is for `heterogeneous: true`."""

    num_probes: Annotated[int, Field(ge=20), Expect("an integer >= 20"), AfterValidator(within_int64)] = 20
    """Timed probe steps at each size that is tried, after warm-up: 20 or more, as medians of fewer say little."""
    update_every_steps: PositiveInt = 100
    """After so many steps a worker's portrait is refreshed by them. A worker that has become faster or slower beyond
    doubt is noticed at once, and does not wait for that."""
    initial: dict[str, InitialPortrait] = Field(default_factory=dict)
    """Starting values by the name of the worker (w0, w1, ... in the order of the --device options)."""

    def check_workers(self, workers: Sequence[str]) -> None:
        """Raises `ConfigError` for a starting value of a worker that is not among `workers`."""
        for worker in self.initial:
            if worker not in workers:
                names = ", ".join(workers[:MAX_LISTED])
                names += f" and {len(workers) - MAX_LISTED} others" if len(workers) > MAX_LISTED else ""
                raise ConfigError(
                    f"portrait.initial.{worker}: there is no such worker, the workers are {names}",
                    field=f"portrait.initial.{worker}",
                    value=worker,
                    expected=f"one of {names}",
                )


class RoutingConfig(Section):
    """When shards move between servers."""

    every_steps: PositiveInt = 200
    max_over_mean: Annotated[float, Field(ge=1), Expect("a number >= 1")] = 1.2


def _check_below_output(directory: str) -> str:
    path = PurePosixPath(directory)
    if not directory or "\0" in directory or path.is_absolute() or ".." in path.parts:
        raise ValueError(directory)
    return directory


class CheckpointConfig(Section):
    """When cuts of the whole state are kept."""

    every: Literal["pass"] = "pass"
    keep: PositiveInt = 3
    """The newest checkpoints that are kept, besides the best. What a delta builds on is kept with it."""
    full_every: PositiveInt = 1
    """Every so many cuts one has all rows; the others are deltas: they have the rows that changed since that one, and
    are of no use without it. 1: all are full."""
    directory: Annotated[
        str, AfterValidator(_check_below_output), Expect("a path below the run's output folder: relative, without '..'")
    ] = "checkpoints"
    """Below the run's output folder."""
