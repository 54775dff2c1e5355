"""Portraits that outlive their job: a device that computed the same model before need not be probed again. Pure."""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Iterable, Mapping
from typing import Any

from coordinator.commands import ForgetPortraits, SavePortrait
from coordinator.cost_model import CostModel
from coordinator.membership import Node
from coordinator.portrait import Portrait
from geartrain.config import JobConfig

MAX_KEPT = 4096
"""Portraits of one store: 16 models on 256 workers. One that is gone is probed again, which takes seconds."""


class PortraitMemory:
    """`MAX_KEPT` portraits at most, by device and model, and the speeds that people set before a job was there to take
    them."""

    def __init__(self, saved: Mapping[str, dict[str, Any]]) -> None:
        """`saved`: what `remember` once wanted saved, by key."""
        self._portraits = {key: Portrait.from_dict(record) for key, record in saved.items()}
        self.starting_speeds: dict[str, float] = {}

    def known(self, config: JobConfig, workers: Iterable[Node]) -> dict[str, Portrait]:
        """The portraits of these workers for this model, as far as they were measured on the same devices."""
        keys = {node.name: _key(config, node) for node in workers}
        return {worker: self._portraits[key] for worker, key in keys.items() if key in self._portraits}

    def remember(
        self, config: JobConfig, workers: Iterable[Node], portraits: Mapping[str, Portrait]
    ) -> list[SavePortrait | ForgetPortraits]:
        """Keep the portraits of a job that has ended; what is to be saved, and what has to leave for it."""
        commands: list[SavePortrait | ForgetPortraits] = []
        for node in workers:
            portrait = portraits.get(node.name)
            if portrait is not None:
                key = _key(config, node)
                self._portraits[key] = portrait
                commands.append(SavePortrait(key, portrait.to_dict()))
        surplus = self._take_oldest(len(self._portraits) - MAX_KEPT)
        return [*commands, ForgetPortraits(surplus)] if surplus else commands

    def _take_oldest(self, number: int) -> tuple[str, ...]:
        """Give up so many portraits, those first that were measured longest ago; their keys."""
        oldest = heapq.nsmallest(number, self._portraits, key=lambda key: (self._portraits[key].measured_at, key))
        for key in oldest:
            del self._portraits[key]
        return tuple(oldest)


def unmeasured(worker: str, device: str, samples_per_s: float, unix_time: float) -> Portrait:
    """What is known of a worker whose speed was set before anything of it was measured."""
    return Portrait(
        worker=worker,
        device=device,
        model="",
        vendor="",
        emulated=device.startswith("emulate:"),
        source="set",
        cost=CostModel(0.0, 1.0 / samples_per_s),
        num_probes=0,
        num_outliers=0,
        measured_at=unix_time,
        step_samples=1,
        tokens_per_sample=0.0,
        max_samples=None,
        precision="",
        precision_samples_per_s={},
        numeric_drift=0.0,
        pull_mb_per_s={},
        push_mb_per_s={},
        round_trip_ms={},
        memory_gb_per_s=0.0,
        bytes_per_sample=0.0,
        reason=f"set to {samples_per_s:.6g} samples/s by a person; the next job begins with it",
    )


def _key(config: JobConfig, node: Node) -> str:
    """What a portrait is true for: the device in its place, and the work."""
    fields = config.to_dict()
    work = {name: fields[name] for name in ("features", "model", "tables", "compression")}
    # What fits, and what was probed, is known up to the size of a batch.
    work |= {name: fields["training"][name] for name in ("precision", "batch_size")}
    place = [node.host, node.name, node.device, work]
    return hashlib.sha256(json.dumps(place, sort_keys=True).encode()).hexdigest()[:32]
