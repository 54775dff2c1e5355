"""Options that several commands share, and what becomes of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import click

from geartrain.addresses import API_URL
from geartrain.device_spec import parse_device
from geartrain.errors import ConfigError

Function = TypeVar("Function", bound=Callable[..., Any])

DEFAULT_COUNT = 2

DEVICE_HELP = (
    "cpu, cuda:N, or emulate:samples_per_s=N,... for a card that is stood for by waiting, which may also have: name, "
    "tokens_per_s (values in sequence slots), bandwidth_mb_s (each way), jitter (0.05: plus or minus 5% per step), "
    "throttle_at_s with throttle_to (0.5: half its speed from then on), memory_mb with sample_kb, precisions "
    "(fp32+bf16+fp16), vendor."
)


def cluster_options(function: Function) -> Function:
    """`--server-num`, `--worker-num` and `--device` of a local cluster: `server_num`, `worker_num`, `devices`."""
    for option in (
        click.option("--device", "devices", metavar="SPEC", multiple=True, help=f"One for each worker: {DEVICE_HELP}"),
        click.option("--worker-num", type=click.IntRange(1), help="Workers [default: one per --device, else 2]."),
        click.option(
            "--server-num", type=click.IntRange(1), default=DEFAULT_COUNT, show_default=True, help="Embedding servers."
        ),
    ):
        function = option(function)
    return function


def json_option(function: Function) -> Function:
    """`--json`: `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="One JSON object as the last line of stdout.")(function)


def set_option(function: Function) -> Function:
    """`--set`, repeated: `overrides`."""
    return click.option(
        "--set", "overrides", metavar="KEY.PATH=VALUE", multiple=True, help="Set a field of the config."
    )(function)


def coordinator_option(function: Function) -> Function:
    """`--coordinator`: `coordinator`, the URL of the API; not given, that of the cluster that is up, if any."""
    return click.option(
        "--coordinator",
        metavar="URL",
        callback=lambda context, option, value: standing_url() if value is None else value,
        help=f"The coordinator's API [default: of the cluster that `geartrain up` started here, else {API_URL}].",
    )(function)


def standing_url() -> str:
    """Where the API of this user's and host's standing cluster is, or would be. Nothing is made for the look."""
    from geartrain.launch.home import home_path
    from geartrain.launch.supervisor import StandingPlace

    standing = None
    with suppress(OSError):  # a home folder that cannot be read has no cluster
        standing = StandingPlace(home_path(os.environ)).read()
    return API_URL if standing is None else standing.url


def resolve_devices(worker_num: int | None, devices: tuple[str, ...]) -> tuple[str, ...]:
    """One device per worker, each checked. Raises `ConfigError` (fact field: --device)."""
    if not devices:
        return ("cpu",) * (worker_num or DEFAULT_COUNT)
    if worker_num is not None and worker_num != len(devices):
        expected = f"one for each of the {worker_num} workers"
        message = f"--device: expected {expected}, got {len(devices)}"
        raise ConfigError(message, field="--device", value=list(devices), expected=expected)
    for device in map(parse_device, devices):
        if device.kind == "cuda":
            from dense_workers.cuda import check_present  # imports torch

            check_present(device)
    return devices


def parse_address(text: str, option: str) -> tuple[str, int]:
    """HOST:PORT, IPv6 hosts in brackets. Raises `ConfigError` that names the option."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        message = f"{option}: expected HOST:PORT, got {text!r}"
        raise ConfigError(message, field=option, value=text, expected="HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def zmq_address(text: str, option: str) -> str:
    """HOST:PORT as a `tcp://` address; addresses with a scheme stay as they are."""
    if "://" not in text:
        parse_address(text, option)
        return f"tcp://{text}"
    return text
