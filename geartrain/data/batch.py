"""What a reader hands to a training step: one batch of samples as plain NumPy arrays.

Shape letters: B samples, S slots, N keys, F numeric features.
"""

from __future__ import annotations

from dataclasses import dataclass

from geartrain.types import Floats, Indices, Keys, Places


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Samples in the order of their positions in the pass; every array is owned by the batch.

    `labels` float32[B], each 0 or 1.
    `numeric` float32[B, 2F]: F transformed values (0 where missing), then F indicators (1 where missing).
    `keys` uint64[N], N < 2**31, slot-major: all samples of slot 0, then all of slot 1, and so on.
    `bag_offsets` int32[S*B + 1], slot-major: the bag of sample b in slot s is
    `keys[bag_offsets[s*B + b] : bag_offsets[s*B + b + 1]]`; a missing sequence is an empty bag.
    `group_ids` uint64[B]: the key of the `data.group_by` slot, or None without one.
    `one_key_bags`: whether it is known that every bag has exactly one key, as without sequences.
    """

    labels: Floats
    numeric: Floats
    keys: Keys
    bag_offsets: Places
    group_ids: Keys | None
    one_key_bags: bool = False

    @property
    def pooling_offsets(self) -> Places | None:
        """`bag_offsets`, or None where they tell nothing: pooling is faster without them."""
        return None if self.one_key_bags else self.bag_offsets

    @property
    def num_samples(self) -> int:
        return len(self.labels)

    def num_values(self, slots: Indices) -> int:
        """How many values all samples together have in `slots` int64[any]."""
        starts = slots * self.num_samples
        return int((self.bag_offsets[starts + self.num_samples] - self.bag_offsets[starts]).sum())
