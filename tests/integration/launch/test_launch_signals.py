"""A request to stop is not lost, whatever runs when the signal comes."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from cluster_driver import cluster_of

from geartrain.launch.signals import StopRequested, raise_if_requested, stop_on_signals


def in_a_library() -> None:
    """Some catch everything."""
    with suppress(BaseException):
        signal.raise_signal(signal.SIGTERM)


class Collected:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def in_a_callback() -> None:
    """The interpreter cannot raise from here; it only reports."""
    Collected()


@pytest.mark.parametrize("swallow", [in_a_library, in_a_callback])
def test_a_swallowed_request_is_raised_at_the_next_look(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], swallow: Callable[[], None]
) -> None:
    with pytest.raises(StopRequested) as caught, stop_on_signals():
        swallow()
        cluster_of(tmp_path).check()
    assert caught.value.exit_status == 143
    assert capsys.readouterr().err == ""


def test_a_request_is_forgotten_with_its_block() -> None:
    before = signal.getsignal(signal.SIGINT)  # ignored, where the tests run in the background of a shell
    with pytest.raises(StopRequested), stop_on_signals():
        signal.raise_signal(signal.SIGINT)
    raise_if_requested()
    assert signal.getsignal(signal.SIGINT) is before


def test_only_the_first_one_interrupts() -> None:
    with pytest.raises(StopRequested) as caught, stop_on_signals():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGINT)
    assert caught.value.exit_status == 143
