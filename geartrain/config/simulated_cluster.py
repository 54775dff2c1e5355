"""The CLUSTER file of `geartrain simulate`: machines that need not exist."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from geartrain.config.loading import read_config
from geartrain.config.section import (
    CountInt,
    Expect,
    Many,
    NonNegativeNumber,
    PositiveInt,
    PositiveNumber,
    Section,
    Text,
    expected,
)
from geartrain.config.validation import field_error, validate
from geartrain.device_spec import DeviceSpec, parse_device
from geartrain.errors import ConfigError

MAX_WORKERS = 2_000
MAX_TOKENS = 65_535
"""Of a sample; real data are counted no further."""


class SimulatedWorkers(Section):
    """Workers of one kind. They get the names w0, w1, ... in the order of the file."""

    device: Text
    """As for `--device`: `emulate:name=V100,samples_per_s=3000,...`. Other devices have no speed that is known."""
    count: Annotated[int, Field(ge=1, le=MAX_WORKERS), Expect(f"an integer from 1 to {MAX_WORKERS}")] = 1
    dies_at_s: NonNegativeNumber | None = None
    """Seconds of training after which all of them die; null: never."""


class SimulatedTokens(Section):
    """Values in the sequence slots of a sample: any number from `least` to `most`, each as likely as the others."""

    least: CountInt
    most: Annotated[int, Field(ge=0, le=MAX_TOKENS), Expect(f"an integer from 0 to {MAX_TOKENS}")]

    @model_validator(mode="after")
    def _check_order(self) -> SimulatedTokens:
        if self.most < self.least:
            raise expected(f"an integer >= least ({self.least})", "most")
        return self


class SimulatedOverheads(Section):
    """What takes time beside cards and links. The defaults were measured on two shared cores; see docs/simulator.md."""

    round_trip_ms: NonNegativeNumber = 2.0
    """From the report of a step, over its decision, to the next grant, when nobody is waited for."""
    step_ms: NonNegativeNumber = 8.0
    """A worker's own work in a step that is no part of its card's time: requests, collectives, encoding."""
    first_step_ms: NonNegativeNumber = 150.0
    """What the first step of training takes longer: everything is done for the first time in it."""
    apply_ms: NonNegativeNumber = 2.0
    """Until the servers answer pulls of a new window's version, apart from the time that its rows take."""
    pull_rows_per_s: PositiveNumber = 30e6
    """Of one server."""
    apply_rows_per_s: PositiveNumber = 20e6
    """Of one server."""
    lease_s: NonNegativeNumber = 2.0
    """Until a worker that died is missed."""
    regroup_s: NonNegativeNumber = 0.3
    """Until a new group can begin its first step."""


class SimulatedCluster(Section):
    """A cluster and what it trains on, as far as the job's config does not say it."""

    workers: Annotated[Many[SimulatedWorkers], Field(min_length=1)]
    servers: PositiveInt = 2
    num_rows: PositiveInt | None = None
    """Samples of a pass; null: those of the config's training files, which are then read: their samples, their tokens,
    and how many different rows steps of them need."""
    tokens_per_sample: SimulatedTokens | None = None
    """null: none, or with `num_rows: null` those of the files."""
    rows_per_sample: PositiveNumber | None = None
    """Different rows that a step pulls and pushes for each of its samples; null: as many as a sample has keys (no two
    samples share one, the worst case), or with `num_rows: null` what steps of the files need."""
    overheads: SimulatedOverheads = SimulatedOverheads()

    @model_validator(mode="after")
    def _check_count(self) -> SimulatedCluster:
        if self.num_workers > MAX_WORKERS:
            raise expected(f"at most {MAX_WORKERS} workers in all", "workers")
        return self

    @property
    def num_workers(self) -> int:
        return sum(kind.count for kind in self.workers)

    def devices(self) -> list[DeviceSpec]:
        """The device of each kind of `workers`, an emulated card.

        Raises ConfigError that names the field for what is no device, or none whose speed is known.
        """
        found = []
        for place, kind in enumerate(self.workers):
            field = f"workers.{place}.device"
            spec = parse_device(kind.device, field)
            if spec.card is None:
                raise field_error(field, "emulate:samples_per_s=N,...", kind.device, note="its speed is not known")
            found.append(spec)
        return found


def load_cluster(path: Path | str) -> SimulatedCluster:
    """The cluster in a YAML 1.2 or JSON file. Raises ConfigError with the facts field, value, expected and file."""
    fields: Mapping[str, Any] = read_config(path)
    try:
        cluster = validate(SimulatedCluster, fields)
        cluster.devices()
        return cluster
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", **{**error.facts, "file": str(path)}) from None
