"""What is not built yet is refused by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from geartrain.config import JobConfig
from geartrain.config.unsupported import NOT_YET
from geartrain.errors import ConfigError

Parse = Callable[..., JobConfig]

CASES = {
    "model.type": ("model.type=din", "model.type"),
    "features.*.pooling": ("features.2.pooling=none", "features.2.pooling"),
    "features.*.attends": ("features.2.attends=item", "features.2.attends"),
    "compression.dense": ("compression.dense=fp16_topk:0.01", "compression.dense"),
    "routing.every_steps": ("routing.every_steps=10", "routing.every_steps"),
    "routing.max_over_mean": ("routing.max_over_mean=1.5", "routing.max_over_mean"),
    "replication": ("replication=2", "replication"),
    "checkpoint.every": ("checkpoint.every=100", "checkpoint.every"),
}


@pytest.mark.parametrize("rule", [rule.field for rule in NOT_YET])
def test_every_rule_refuses_by_name(parse: Parse, rule: str) -> None:
    override, field = CASES[rule]
    with pytest.raises(ConfigError) as caught:
        parse(override)
    assert caught.value.facts["field"] == field
    assert caught.value.message.endswith("(not available yet)")


def test_every_case_is_of_a_rule() -> None:
    assert set(CASES) == {rule.field for rule in NOT_YET}


def test_rules_hold_for_configs_from_the_wire(parse: Parse) -> None:
    fields = parse().to_dict()
    fields["replication"] = 3
    with pytest.raises(ConfigError, match=r"^replication: expected 1, got 3 \(not available yet\)$"):
        JobConfig.from_resolved(fields)
