from __future__ import annotations

import numpy as np
import pytest
from contract_samples import EXTREME_KEYS, assert_same, key_lists, key_values, keys_from, many, seeds, unmixed
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from geartrain.errors import KernelError
from geartrain.types import NUM_SHARDS, Indices
from kernels import hashing
from kernels.reference import hashing as reference


def packed(strings: list[bytes]) -> tuple[Indices, NDArray[np.uint8]]:
    offsets = np.cumsum([0, *(len(text) for text in strings)]).astype(np.int64)
    return offsets, np.frombuffer(b"".join(strings), dtype=np.uint8)


@many
@given(key_lists)
def test_mix_and_shard_match_the_reference(values: list[int]) -> None:
    keys = keys_from(values)
    assert_same(hashing.mix64(keys), reference.mix64(keys))
    assert_same(hashing.shard_of(keys), reference.shard_of(keys))


@many
@given(st.lists(st.binary(max_size=40), max_size=20), seeds)
def test_string_hashes_match_the_reference(strings: list[bytes], seed: int) -> None:
    offsets, data = packed(strings)
    assert_same(hashing.hash_strings(offsets, data, seed), reference.hash_strings(offsets, data, seed))


@many
@given(key_values)
def test_mix_is_a_bijection(value: int) -> None:
    assert unmixed(int(hashing.mix64(keys_from([value]))[0])) == value


def test_hashes_never_change() -> None:
    """Checkpoints hold keys: these numbers are part of their format."""
    assert [hex(value) for value in hashing.mix64(keys_from([0, 1, 2**64 - 1]))] == [
        "0x0",
        "0x5692161d100b05e5",
        "0xb4d055fcf2cbbd7b",
    ]
    offsets, data = packed([b"", b"7", b"12345678", b"a longer string"])
    assert [hex(value) for value in hashing.keys_of_strings(offsets, data, "user")] == [
        "0x437f5eaafe175001",
        "0xb90b8a8dbdf937b0",
        "0xdfe810c00366ffca",
        "0x7d2a8511bfc486c1",
    ]
    assert hex(hashing.keys_of_integers(np.array([7]), "user")[0]) == "0x97c28a631faafa9b"


def test_strings_that_differ_in_padding_or_place_differ() -> None:
    strings = [b"", b"\0", b"\0" * 8, b"\0" * 9, b"a", b"a\0", b"\0a", b"a" * 8, b"a" * 9, b"b" * 8 + b"a" * 8]
    offsets, data = packed(strings)
    assert len(set(hashing.hash_strings(offsets, data, 0).tolist())) == len(strings)


def test_a_slice_of_a_string_array_hashes_like_the_strings_alone() -> None:
    offsets, data = packed([b"first", b"second", b"third"])
    alone = hashing.hash_strings(*packed([b"second", b"third"]), 5)
    assert_same(hashing.hash_strings(offsets[1:], data, 5), alone)


def test_negative_ids_are_legal_and_keep_their_own_keys() -> None:
    signed = np.array([-1, -(2**63), 0, 2**63 - 1], dtype=np.int64)
    keys = hashing.keys_of_integers(signed, "item")
    assert_same(keys, hashing.keys_of_integers(signed.view(np.uint64), "item"))
    assert len(set(keys.tolist())) == 4


def test_one_id_has_different_keys_in_different_tables() -> None:
    ids = np.arange(100, dtype=np.int64)
    users, items = hashing.keys_of_integers(ids, "user"), hashing.keys_of_integers(ids, "item")
    assert not set(users.tolist()) & set(items.tolist())


def test_shards_are_even() -> None:
    counts = np.bincount(hashing.shard_of(hashing.keys_of_integers(np.arange(1_000_000), "t")), minlength=NUM_SHARDS)
    assert len(counts) == NUM_SHARDS
    expected = 1_000_000 / NUM_SHARDS
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert abs(chi_square - NUM_SHARDS) < 6 * (2 * NUM_SHARDS) ** 0.5


def test_many_strings_do_not_collide() -> None:
    offsets, data = packed([b"id-%d" % number for number in range(100_000)])
    assert len(np.unique(hashing.hash_strings(offsets, data, 1))) == 100_000


@pytest.mark.parametrize("offsets", [[0, 3, 2], [-1, 2], [0, 5], []])
def test_bad_offsets_are_refused(offsets: list[int]) -> None:
    with pytest.raises(KernelError) as caught:
        hashing.hash_strings(np.array(offsets, dtype=np.int64), np.zeros(4, dtype=np.uint8), 0)
    assert caught.value.facts["argument"] == "offsets"


def test_wrong_arrays_are_refused_by_name() -> None:
    for call in (hashing.mix64, hashing.shard_of):
        with pytest.raises(KernelError, match=r"(values|keys): expected dtype uint64"):
            call(np.array(EXTREME_KEYS[:3], dtype=np.float64))
    with pytest.raises(KernelError, match="ids: expected dtype uint64, got dtype int32"):
        hashing.keys_of_integers(np.zeros(3, dtype=np.int32), "t")  # type: ignore[arg-type]
    with pytest.raises(KernelError, match="seed"):
        hashing.hash_strings(np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint8), -1)
