"""What a job cannot do on its workers, by what is known of their devices before anything starts. Pure.

`geartrain train` asks before it starts a role, `geartrain simulate` before it simulates: both refuse the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from coordinator.cost_model import CostModel
from coordinator.events import MemberCost
from coordinator.matching import match_equally
from coordinator.plan import match_settings, min_share
from coordinator.shares import cut_by_time, cut_equally
from geartrain.config import JobConfig
from geartrain.config.validation import field_error
from geartrain.device_spec import EmulatedCard, parse_device
from geartrain.errors import ConfigError
from geartrain.types import Interval


def check_devices(config: JobConfig, devices: Mapping[str, str]) -> None:
    """Raises ConfigError (facts: field, value, expected) for a job that would fail on these workers.

    `devices`: the spec of each worker's device by its name. Of an emulated card memory and precisions are known, of
    another device neither is.
    """
    config.portrait.check_workers(list(devices))
    cards = {spec: parse_device(spec).card for spec in dict.fromkeys(devices.values())}
    for worker, spec in devices.items():
        card = cards[spec]
        if card is not None:
            _check_precision(config, worker, spec, card)
    most = {worker: _most_samples(cards[spec]) for worker, spec in devices.items()}
    if config.heterogeneous:
        _check_memory(config, devices, most)
    else:
        _check_equal_shares(config, devices, most)


def _most_samples(card: EmulatedCard | None) -> int | None:
    return card.max_samples if card is not None else None


def _check_precision(config: JobConfig, worker: str, spec: str, card: EmulatedCard) -> None:
    wanted = config.training.precision
    if wanted != "auto" and wanted not in card.precisions:
        expected = f"auto, or one of {', '.join(card.precisions)}"
        raise ConfigError(
            f"training.precision: worker {worker} on {spec} cannot compute in {wanted}; expected {expected}",
            field="training.precision",
            value=wanted,
            expected=expected,
        )


def _check_memory(config: JobConfig, devices: Mapping[str, str], most: Mapping[str, int | None]) -> None:
    """Shares by speed never exceed a worker's memory: all together must hold the batch, and each its smallest share."""
    least = max(1, min_share(config))
    for worker, holds in most.items():
        if holds is not None and holds < least:
            raise ConfigError(
                f"model.batch_norm: worker {worker} on {devices[worker]} holds steps of {holds} sample(s), expected "
                f"{least} at least: fewer cannot be normalized",
                field="model.batch_norm",
                value=True,
                expected=f"false, or devices that hold {least} samples",
            )
    size = config.training.batch_size
    costs = [MemberCost(CostModel(0.0, 1.0), holds) for holds in most.values()]
    refused = cut_by_time(Interval(0, 0, size), costs, min_share(config)).refused
    if refused:
        raise field_error("training.batch_size", "a batch that can be cut among all workers", size, note=refused)


def _check_equal_shares(config: JobConfig, devices: Mapping[str, str], most: Mapping[str, int | None]) -> None:
    """Equal shares take no account of memory: each worker must hold its own."""
    settings = match_settings(config, 0.0)
    for group in match_equally(list(devices), settings, 0).groups:
        cuts = cut_equally(Interval(0, 0, group.batch_size), len(group.members), settings.min_share).cuts
        for worker, (start, stop) in zip(group.members, pairwise(cuts), strict=True):
            holds = most[worker]
            if holds is not None and stop - start > holds:
                fits = min(one for one in most.values() if one is not None) * len(devices)
                raise ConfigError(
                    f"training.batch_size: {settings.batch_size} samples in equal shares (heterogeneous: false) are "
                    f"{stop - start} for worker {worker} on {devices[worker]}, whose memory holds {holds}",
                    field="training.batch_size",
                    value=settings.batch_size,
                    expected=f"at most {fits}, or heterogeneous: true",
                )
