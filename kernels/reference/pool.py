"""NumPy definition of pooling. Sums run over occurrences in slot-major order, one after the other."""

from __future__ import annotations

import numpy as np

from geartrain.types import Floats, Indices, Places


def pool_forward(
    rows: Floats, inverse: Places, bag_offsets: Places | None, mean_slots: np.ndarray, num_samples: int
) -> Floats:
    num_slots = len(mean_slots)
    bag, divisor = _bags(_offsets(bag_offsets, inverse), mean_slots, num_samples)
    sums = np.zeros((num_slots * num_samples, rows.shape[1]), dtype=np.float32)
    np.add.at(sums, bag, rows[inverse])
    sums /= divisor[:, None]
    return np.ascontiguousarray(sums.reshape(num_slots, num_samples, rows.shape[1]).transpose(1, 0, 2))


def pool_backward(
    grad: Floats, inverse: Places, bag_offsets: Places | None, mean_slots: np.ndarray, num_unique: int
) -> Floats:
    num_samples, num_slots, dim = grad.shape
    bag, divisor = _bags(_offsets(bag_offsets, inverse), mean_slots, num_samples)
    per_bag = grad.transpose(1, 0, 2).reshape(num_slots * num_samples, dim) / divisor[:, None]
    sums = np.zeros((num_unique, dim), dtype=np.float32)
    np.add.at(sums, inverse, per_bag[bag])
    return sums


def count_shows(inverse: Places, bag_offsets: Places | None, labels: Floats, num_unique: int) -> tuple[Floats, Floats]:
    bag_offsets = _offsets(bag_offsets, inverse)
    bag = np.repeat(np.arange(len(bag_offsets) - 1), np.diff(bag_offsets))
    shows = np.zeros(num_unique, dtype=np.float32)
    clicks = np.zeros(num_unique, dtype=np.float32)
    np.add.at(shows, inverse, np.float32(1))
    if len(bag):
        np.add.at(clicks, inverse, labels[bag % len(labels)])
    return shows, clicks


def _offsets(bag_offsets: Places | None, inverse: Places) -> Places:
    return np.arange(len(inverse) + 1, dtype=np.int32) if bag_offsets is None else bag_offsets


def _bags(bag_offsets: Places, mean_slots: np.ndarray, num_samples: int) -> tuple[Indices, Floats]:
    """The bag of each key, and what each bag's sum is divided by (1 for sums and for empty bags)."""
    lengths = np.diff(bag_offsets)
    means = np.repeat(mean_slots != 0, num_samples) & (lengths > 0)
    return np.repeat(np.arange(len(lengths)), lengths), np.where(means, lengths, 1).astype(np.float32)
