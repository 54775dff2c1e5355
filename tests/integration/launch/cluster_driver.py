"""Processes that own a cluster of stand-ins, for tests to end in every way.

`cluster_driver.py job OUTPUT` runs one job; `cluster_driver.py stand OUTPUT HOME` keeps the cluster up. Both print the
process ids of the roles as a JSON line.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from fake_role import fake_command

from geartrain.errors import GeartrainError
from geartrain.launch.local import ClusterSpec, LocalCluster
from geartrain.launch.signals import StopRequested, stop_on_signals
from geartrain.launch.supervisor import StandingPlace, supervise


def cluster_of(output: Path, devices: tuple[str, ...] = ("cpu", "cpu")) -> LocalCluster:
    """Two servers and a worker per device, all stand-ins, that write to `output`."""
    spec = ClusterSpec(
        num_servers=2,
        devices=devices,
        listen="127.0.0.1:0",
        output_dir=output,
        allowed_roots=(output,),
        logs_dir=output / "logs",
        api_token="secret",
    )
    return LocalCluster(spec, fake_command)


def announce(cluster: LocalCluster) -> None:
    print(json.dumps([role.process.pid for role in cluster.roles]), flush=True)


def main() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
    output = Path(sys.argv[2])
    cluster = cluster_of(output)
    try:
        if sys.argv[1] == "stand":
            supervise(StandingPlace(Path(sys.argv[3])), cluster, lambda _: announce(cluster))
        with stop_on_signals(), cluster:
            announce(cluster)
            cluster.run_job({}, {"kind": "train"}, lambda job: print(job["state"], flush=True))
    except StopRequested as stop:
        sys.exit(stop.exit_status)
    except GeartrainError as error:
        sys.exit(f"error: {error.message}")


if __name__ == "__main__":
    main()
