"""A simulation from its cluster and config to its result, as plain data. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coordinator.device_checks import check_devices
from coordinator.plan import match_settings, window_settings
from coordinator.simulated_choices import Choice, compare_choices
from coordinator.simulated_data import SimulatedData, traffic_of
from coordinator.simulated_devices import Array, Members, SimulatedWorker, simulated_workers
from coordinator.simulated_groups import GroupChooser
from coordinator.simulated_job import SimulatedJob, probe_workers
from coordinator.simulated_progress import Observe, SimulatedProgress
from coordinator.simulated_solo import SoloRun
from coordinator.simulated_steps import CAUSES, COMPUTING, SimulatedGroup, Surroundings
from coordinator.simulator import SimulatedRun, Simulation
from geartrain.config import JobConfig
from geartrain.config.simulated_cluster import SimulatedCluster

MAX_EVENTS = 100


def simulate(
    cluster: SimulatedCluster,
    config: JobConfig,
    data: SimulatedData,
    num_samples: int,
    seed: int,
    observe: Observe | None = None,
) -> dict[str, Any]:
    """Train `num_samples` samples of the job on the cluster, and what other choices would give; all of it as plain JSON
    data, with units in the names. `observe` hears how far it is.

    Raises ConfigError for what does not fit together or a real job would be refused for, GeartrainError when all
    workers die.
    """
    workers = simulated_workers(cluster)
    check_devices(config, {worker.name: worker.device for worker in workers})
    job = simulated_job(cluster, config, data, num_samples)
    speeds = {name: one.samples_per_s for name, one in config.portrait.initial.items()}
    portraits = probe_workers(workers, job, speeds, seed)
    chooser = GroupChooser(workers, job, portraits, progress=SimulatedProgress("the job", num_samples, observe))
    run = Simulation(workers, job, chooser, seed).run()
    choices = compare_choices(workers, job, portraits, run.first_groups, seed, observe)
    return _result(workers, job, run, choices) | {"seed": seed, "servers": cluster.servers}


def simulated_job(cluster: SimulatedCluster, config: JobConfig, data: SimulatedData, num_samples: int) -> SimulatedJob:
    """What a config, a cluster and data make together."""
    return SimulatedJob(
        num_rows=data.num_rows,
        num_samples=num_samples,
        match=match_settings(config, data.tokens_per_sample),
        window=window_settings(config),
        heterogeneous=config.heterogeneous,
        around=Surroundings(
            traffic=traffic_of(config, data),
            servers=cluster.servers,
            overheads=cluster.overheads,
            pipeline_depth=config.sync.pipeline_depth,
            tokens=data.tokens,
        ),
        num_probes=config.portrait.num_probes,
        update_every_steps=config.portrait.update_every_steps,
    )


def _result(
    workers: Sequence[SimulatedWorker], job: SimulatedJob, run: SimulatedRun, choices: Sequence[Choice]
) -> dict[str, Any]:
    solo = SoloRun(job.around, job.match.batch_size, job.match.tokens_per_sample)
    members = Members(workers)
    capacity = float(solo.capacity(members, run.seconds).sum())
    speeds = solo.samples_per_s(members, throttled=False)
    chosen, equal = choices[0].run.samples_per_s, choices[1].run.samples_per_s
    return {
        "samples": run.samples,
        "samples_skipped": run.samples_skipped,
        "version": run.version,
        "seconds": round(run.seconds, 4),
        "samples_per_s": round(run.samples_per_s, 1),
        "heterogeneity": {
            "throughput_over_sum_of_solo": round(run.samples / capacity, 4),
            "sum_of_solo_samples_per_s": round(capacity / run.seconds, 1),
            "equal_shares_samples_per_s": round(equal, 1),
        },
        "staleness": {
            "histogram": {str(key): count for key, count in sorted(run.staleness.items())},
            "max": max(run.staleness, default=0),
        },
        "time": time_by_cause(run.spent, speeds),
        "groups": [_group(number, group) for number, group in enumerate(run.groups)],
        "workers": _worker_rows(workers, run, speeds),
        "choices": [
            {
                "choice": one.name,
                "groups": one.num_groups,
                "samples_per_s": round(one.run.samples_per_s, 1),
                "over_chosen": round(one.run.samples_per_s / chosen, 4),
                "max_staleness": max(one.run.staleness, default=0),
            }
            for one in choices
        ],
        "choices_samples": choices[0].run.samples,
        "events": [{"at_s": round(at_s, 3), "reason": reason} for at_s, reason in run.events[:MAX_EVENTS]],
        "num_events": len(run.events),
    }


def time_by_cause(spent: Array, speeds: Array) -> list[dict[str, Any]]:
    """Where the workers' time went, from `spent` float64[C, W] seconds; `share` weighs each worker by its speed
    float64[W]: it is the share of what the cluster could have done."""
    weighted = spent @ speeds
    whole = float(weighted.sum())
    return [
        {"cause": cause, "share": round(float(part) / whole, 4), "worker_s": round(float(seconds), 3)}
        for cause, part, seconds in zip(CAUSES, weighted, spent.sum(axis=1), strict=True)
    ]


def _group(number: int, group: SimulatedGroup) -> dict[str, Any]:
    in_all = group.samples.sum()
    step_s = np.array(group.step_s) if group.step_s else np.zeros(1)
    return {
        "group": number,
        "members": list(group.spec.members),
        "batch_size": group.spec.batch_size,
        "shares": [round(float(share), 4) for share in group.samples / in_all] if in_all else [],
        "samples_per_s": round(float(in_all / step_s.sum()), 1) if in_all else 0.0,
        "step_ms": {f"p{percent}": round(1000 * float(np.percentile(step_s, percent)), 3) for percent in (50, 99)},
    }


def _worker_rows(workers: Sequence[SimulatedWorker], run: SimulatedRun, speeds: Array) -> list[dict[str, Any]]:
    group_of = {worker: number for number, group in enumerate(run.groups) for worker in group.spec.members}
    whole = run.spent.sum(axis=0)
    return [
        {
            "worker": worker.name,
            "device": worker.label,
            "group": group_of.get(worker.name),
            "samples": int(run.worker_samples[place]),
            "solo_samples_per_s": round(float(speeds[place]), 1),
            "computing": round(float(run.spent[COMPUTING, place] / whole[place]), 4) if whole[place] else 0.0,
        }
        for place, worker in enumerate(workers)
    ]
