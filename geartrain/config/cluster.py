"""What concerns the cluster rather than the model: compression, portraits, routing, checkpoints."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from geartrain.config.section import Expect, PositiveInt, PositiveNumber, Section


class CompressionConfig(Section):
    """How rows and gradients are encoded on the wire."""

    embedding: Literal["auto", "fp32"] = "auto"
    dense: Literal["auto", "fp32"] = "fp32"
    error_feedback: bool = True
    """Whether what a lossy encoding leaves out is added to the next step; fp32 leaves nothing out."""


class InitialPortrait(Section):
    """A starting value for a worker, until it is measured."""

    samples_per_s: PositiveNumber


class PortraitConfig(Section):
    """How workers are measured."""

    num_probes: PositiveInt = 20
    update_every_steps: PositiveInt = 100
    initial: dict[str, InitialPortrait] = Field(default_factory=dict)


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
    """The newest checkpoints that are kept, besides the best."""
    directory: Annotated[
        str, AfterValidator(_check_below_output), Expect("a path below the run's output folder: relative, without '..'")
    ] = "checkpoints"
    """Below the run's output folder."""
