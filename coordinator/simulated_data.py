"""What a simulated job trains on: how many samples, how long they are, what their steps need of the servers. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from coordinator.grants import TokenLookup
from coordinator.simulated_devices import Traffic
from geartrain.config import JobConfig, row_dim
from geartrain.config.features import NumericFeature, SequenceFeature
from geartrain.config.simulated_cluster import SimulatedCluster, SimulatedTokens
from geartrain.types import Indices, Interval
from kernels.wire_codec import encoded_bytes

_PERIOD = 1 << 16


@dataclass(frozen=True, slots=True)
class SimulatedData:
    """`num_rows` samples a pass; `tokens` is None where they have none. Steps of `step_samples[i]` samples, which begin
    with 0, need `step_rows[i]` different rows."""

    num_rows: int
    tokens: TokenLookup | None
    tokens_per_sample: float
    step_samples: Indices
    step_rows: Indices


class DrawnTokens:
    """Tokens of samples that do not exist: drawn for the positions of a pass, and the same in every pass. They repeat
    after 65,536 samples."""

    def __init__(self, tokens: SimulatedTokens, seed: int) -> None:
        drawn = np.random.default_rng([seed, 2]).integers(tokens.least, tokens.most, _PERIOD, endpoint=True)
        self._upto = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(drawn, dtype=np.int64)])

    def cumulative(self, interval: Interval) -> Indices:
        """int64[n + 1]: tokens of the first k positions of `interval`, for k from 0 to its length n."""
        whole, rest = np.divmod(np.arange(interval.start, interval.stop + 1), _PERIOD)
        before = whole * self._upto[-1] + self._upto[rest]
        result: Indices = before - before[0]
        return result


def drawn_data(cluster: SimulatedCluster, config: JobConfig, num_rows: int, seed: int) -> SimulatedData:
    """Data that nobody reads: as the cluster file describes them, and by the worst case where it does not."""
    tokens = cluster.tokens_per_sample
    mean = 0.0 if tokens is None else (tokens.least + tokens.most) / 2
    per_sample = cluster.rows_per_sample or num_keys(config, mean)
    return SimulatedData(
        num_rows=num_rows,
        tokens=None if tokens is None else DrawnTokens(tokens, seed),
        tokens_per_sample=mean,
        step_samples=np.array([0, 1_000_000]),
        step_rows=np.array([0, round(1_000_000 * per_sample)]),
    )


def num_keys(config: JobConfig, tokens_per_sample: float) -> float:
    """Keys of a sample: one of each slot, of sequences as many as they have values."""
    slots = [feature for feature in config.features if feature.table is not None]
    return sum(not isinstance(slot, SequenceFeature) for slot in slots) + tokens_per_sample


def traffic_of(config: JobConfig, data: SimulatedData) -> Traffic:
    """The bytes of steps of this job on these data."""
    return Traffic(
        step_samples=data.step_samples.astype(np.float64),
        step_rows=data.step_rows.astype(np.float64),
        row_bytes=float(encoded_bytes(config.compression.row_codec, row_dim(config.model))),
        dense_bytes=4.0 * num_dense_values(config),
    )


def num_dense_values(config: JobConfig) -> int:
    """Length of the flat dense vector of the config's model (`dense_workers.models`), by its formulas."""
    model = config.model
    slots = sum(feature.table is not None for feature in config.features)
    numeric = 2 * sum(isinstance(one, NumericFeature) and one.table is None for one in config.features)
    if model.type == "lr":
        return numeric + 1
    inputs = slots * model.embedding_dim + numeric
    widths = [inputs, *model.hidden]
    tower = sum(before * after + after for before, after in pairwise(widths))
    if model.batch_norm:  # scale, shift and two moving averages, in place of the layer's bias
        tower += 3 * sum(model.hidden)
    if model.type == "dcn":
        cross = model.num_cross_layers * (inputs * inputs + inputs)
        return tower + cross + inputs + widths[-1] + 1
    return tower + widths[-1] + 1 + numeric
