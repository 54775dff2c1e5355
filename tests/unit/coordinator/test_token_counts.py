"""Tokens of intervals: those of the batches that workers read for the same intervals of the same pass."""

from __future__ import annotations

import os
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cluster_model import steady
from hypothesis import given
from hypothesis import strategies as st

from coordinator.token_counts import TokenCounts
from geartrain.config import JobConfig, parse_config
from geartrain.data.index import build_index
from geartrain.data.permutation import PassOrder
from geartrain.data.reader import SplitReader
from geartrain.data.tokens import count_tokens
from geartrain.types import Interval

HISTORY = {"name": "history", "kind": "sequence", "table": "item", "max_length": 50}
DATA = Path(os.environ.get("GEARTRAIN_DATA", Path(__file__).resolve().parents[4] / "shared" / "data"))


def job(root: Path, shuffle: bool, **data: Any) -> JobConfig:
    fields = {
        "features": [{"name": "item", "kind": "categorical"}, HISTORY],
        "label": "label",
        "data": {"root": str(root), "shuffle": shuffle, **data},
        "model": {"type": "lr"},
        "training": {"seed": 5},
    }
    return parse_config(fields, root, [root])


def check_against_reader(config: JobConfig, num_passes: int, step: int) -> None:
    """Every interval of `step` positions of the passes: cumulative tokens as the bags of its batch have them."""
    index = build_index(config)
    counts = count_tokens(config, index)
    assert counts is not None
    reader = SplitReader(index, config, "train")
    tokens = TokenCounts(counts, reader.chunk_rows, config.training.seed, config.data.shuffle)
    for pass_index in range(num_passes):
        order = PassOrder(reader.chunk_rows, config.training.seed, pass_index, config.data.shuffle)
        for start, stop in pairwise([*range(0, order.num_rows, step), order.num_rows]):
            batch = reader.batch(order, start, stop)
            sizes = np.diff(batch.bag_offsets)[batch.num_samples :]  # slot 1 is the sequence
            expected = [0, *np.cumsum(sizes).tolist()]
            assert tokens.cumulative(Interval(pass_index, start, stop)).tolist() == expected
    reader.close()


@pytest.mark.parametrize("shuffle", [True, False])
def test_intervals_have_the_tokens_of_their_batches_in_every_format(tmp_path: Path, shuffle: bool) -> None:
    lengths = [(7 * row) % 61 for row in range(90)]
    histories = [list(range(length)) for length in lengths]
    table = pa.table({"label": [row % 2 for row in range(90)], "item": list(range(90)), "history": histories})
    pq.write_table(table, tmp_path / "one.parquet", row_group_size=13)
    for part in range(3):
        rows = range(30 * part, 30 * part + 30)
        lines = [f"{row % 2}\t{row}\t{'|'.join(map(str, histories[row]))}" for row in rows]
        (tmp_path / f"part{part}.tsv").write_text("\n".join(["label\titem\thistory", *lines]) + "\n")
    check_against_reader(job(tmp_path, shuffle, format="parquet", train=["one.parquet"]), num_passes=3, step=17)
    check_against_reader(job(tmp_path, shuffle, format="tsv", train=["part*.tsv"]), num_passes=3, step=17)


def test_histories_of_real_users(tmp_path: Path) -> None:
    """Amazon Beauty: every item after a user's first, with what the user took before it."""
    path = DATA / "beauty_seq" / "beauty.txt"
    if not path.exists():
        pytest.skip(f"sample data are missing: {path} (set GEARTRAIN_DATA)")
    with path.open() as file:
        pairs = [line.split() for line, _ in zip(file, range(20_000), strict=False)]
    items, histories = [], []
    for _, rows in groupby(pairs, key=lambda pair: pair[0]):
        taken = [item for _, item in rows]
        items += taken[1:]
        histories += ["|".join(taken[:place]) for place in range(1, len(taken))]
    table = pa.table({"label": np.ones(len(items)), "item": items, "history": histories})
    pq.write_table(table, tmp_path / "train.parquet", row_group_size=4096)
    check_against_reader(job(tmp_path, True, format="parquet", train=["train.parquet"]), num_passes=2, step=512)


@steady
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.booleans(), st.integers(0, 5), st.data())
def test_any_interval_is_part_of_its_pass(
    chunk_rows: list[int], shuffle: bool, pass_index: int, data: st.DataObject
) -> None:
    num_rows = sum(chunk_rows)
    counts = np.array([3**place % 65_521 for place in range(num_rows)], dtype=np.uint16)
    tokens = TokenCounts(counts, chunk_rows, seed=2, shuffle=shuffle)
    whole = tokens.cumulative(Interval(pass_index, 0, num_rows))
    assert sorted(np.diff(whole).tolist()) == sorted(counts.tolist())
    start, stop = sorted(data.draw(st.tuples(st.integers(0, num_rows), st.integers(0, num_rows))))
    part = tokens.cumulative(Interval(pass_index, start, stop))
    assert part.dtype == np.int64
    assert part.tolist() == (whole[start : stop + 1] - whole[start]).tolist()


def test_sums_go_beyond_two_bytes_and_the_mean_is_over_all_rows() -> None:
    tokens = TokenCounts(np.full(4, 60_000, dtype=np.uint16), [3, 1], seed=1, shuffle=True)
    assert tokens.cumulative(Interval(0, 0, 4)).tolist() == [0, 60_000, 120_000, 180_000, 240_000]
    assert tokens.mean == 60_000.0
    assert TokenCounts(np.array([1, 2, 6], dtype=np.uint16), [3], 1, False).mean == 3.0
    assert TokenCounts(np.zeros(0, dtype=np.uint16), [], 1, True).mean == 0.0


def test_passes_may_be_asked_for_in_any_order() -> None:
    counts = np.arange(50, dtype=np.uint16)
    tokens = TokenCounts(counts, [20, 30], seed=3, shuffle=True)
    expected = {
        one: TokenCounts(counts, [20, 30], 3, True).cumulative(Interval(one, 5, 45)).tolist() for one in (0, 1, 2)
    }
    assert len({tuple(values) for values in expected.values()}) == 3
    for one in (0, 1, 0, 2, 1, 0, 2, 2):
        assert tokens.cumulative(Interval(one, 5, 45)).tolist() == expected[one]


def test_what_is_outside_the_data_is_refused() -> None:
    tokens = TokenCounts(np.ones(5, dtype=np.uint16), [5], seed=1, shuffle=True)
    with pytest.raises(ValueError, match=r"\[3, 6\) is not inside a pass of 5 rows"):
        tokens.cumulative(Interval(0, 3, 6))
    with pytest.raises(ValueError, match="5 rows have counts, the chunks have 6 rows"):
        TokenCounts(np.ones(5, dtype=np.uint16), [6], seed=1, shuffle=True)
