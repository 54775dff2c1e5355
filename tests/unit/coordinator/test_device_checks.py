"""What is known of devices before a job starts on them: precisions, starting values, and whether memory can hold it."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_nodes import job_config

from coordinator.device_checks import check_devices
from geartrain.errors import ConfigError

MODEL = {"type": "deepfm", "embedding_dim": 4, "hidden": [2]}


def holding(*samples: int | None) -> dict[str, str]:
    """Workers w0, w1, ... whose memory holds steps of so many samples; None: a CPU."""
    specs = ["cpu" if one is None else f"emulate:samples_per_s=1000,memory_mb={one},sample_kb=1000" for one in samples]
    return {f"w{number}": spec for number, spec in enumerate(specs)}


def refusal(devices: dict[str, str], **sections: Any) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        check_devices(job_config(**sections), devices)
    return refused.value


def batch_of(size: int) -> dict[str, Any]:
    return {"training": {"passes": 1, "batch_size": size}, "heterogeneous": True}


def test_a_batch_that_all_together_cannot_hold() -> None:
    error = refusal(holding(30, 50), **batch_of(81))
    assert error.message.startswith("training.batch_size: 81 samples of a step do not fit")
    assert error.facts == {"field": "training.batch_size", "value": 81, "expected": "at most 80"}
    check_devices(job_config(**batch_of(80)), holding(30, 50))
    check_devices(job_config(**batch_of(10**9)), holding(30, None))


def test_a_batch_that_fits_only_with_a_share_of_one_sample() -> None:
    config = {**batch_of(5), "model": {**MODEL, "batch_norm": True}}
    error = refusal(holding(2, 2, 2), **config)
    assert (error.facts["field"], error.facts["value"]) == ("training.batch_size", 5)
    assert "5 samples do not fit in memory in shares of 2 or more" in error.message
    check_devices(job_config(**config), holding(2, 3, 2))
    check_devices(job_config(**batch_of(5)), holding(2, 2, 2))


def test_a_device_that_holds_less_than_a_share() -> None:
    error = refusal(holding(100, 1), **{**batch_of(5), "model": {**MODEL, "batch_norm": True}})
    assert error.facts["field"] == "model.batch_norm"
    assert "worker w1 on emulate:samples_per_s=1000,memory_mb=1,sample_kb=1000 holds steps of 1" in error.message


@given(
    st.lists(st.integers(2, 5), min_size=1, max_size=4),
    st.integers(2, 20),
    st.booleans(),
)
def test_refused_is_what_cannot_be_cut_in_any_way(bounds: list[int], size: int, batch_norm: bool) -> None:
    least = 2 if batch_norm else 1
    shares = [[0, *range(least, bound + 1)] for bound in bounds]
    can_be_cut = any(sum(one) == size for one in product(*shares))
    config = job_config(**batch_of(size), model={**MODEL, "batch_norm": batch_norm})
    if can_be_cut:
        check_devices(config, holding(*bounds))
        return
    with pytest.raises(ConfigError) as refused:
        check_devices(config, holding(*bounds))
    assert refused.value.facts["field"] == "training.batch_size"


def test_equal_shares_need_memory_of_each() -> None:
    equally = {**batch_of(80), "heterogeneous": False}
    error = refusal(holding(None, 30), **equally)
    assert error.facts == {
        "field": "training.batch_size",
        "value": 80,
        "expected": "at most 60, or heterogeneous: true",
    }
    assert "are 40 for worker w1 on emulate:" in error.message and "whose memory holds 30" in error.message
    check_devices(job_config(**{**equally, **batch_of(60), "heterogeneous": False}), holding(None, 30))
    check_devices(job_config(**batch_of(80)), holding(None, 30))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 4))
def test_the_batch_that_is_expected_of_equal_shares_is_accepted(bounds: list[int], group_size: int) -> None:
    sections = {"heterogeneous": False, "sync": {"group_size": group_size}}
    fits = min(bounds) * len(bounds)
    check_devices(job_config(**{**batch_of(fits), **sections}), holding(*bounds))
    error = refusal(holding(*bounds), **{**batch_of(fits + len(bounds)), **sections})
    assert error.facts["expected"] == f"at most {fits}, or heterogeneous: true"


def test_a_precision_that_a_card_does_not_have() -> None:
    training = {"passes": 1, "batch_size": 8, "precision": "bf16"}
    devices = {"w0": "cpu", "w1": "emulate:samples_per_s=1,precisions=fp32+fp16"}
    error = refusal(devices, training=training)
    assert error.facts == {"field": "training.precision", "value": "bf16", "expected": "auto, or one of fp32, fp16"}
    assert "worker w1" in error.message
    check_devices(job_config(training={**training, "precision": "fp16"}), devices)


def test_a_starting_value_of_nobody() -> None:
    error = refusal(holding(*[None] * 12), portrait={"initial": {"w12": {"samples_per_s": 5}}})
    assert error.facts["field"] == "portrait.initial.w12"
    assert error.facts["expected"].endswith("w7 and 4 others")
