"""The checks of `geartrain doctor`, each with something that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

import geartrain
from geartrain.doctor import OUR_PACKAGES, Check, check_compiler, check_lockstep, check_package, has_failed, time_outs
from geartrain.timeouts import TimeOuts

OURS = Path(str(geartrain.__file__)).parent.parent


@pytest.mark.parametrize("name", OUR_PACKAGES)
def test_the_packages_that_are_imported_are_ours(name: str) -> None:
    module = __import__(name)
    assert check_package(name, lambda _: Path(str(module.__file__)).parent).state == "ok"


def test_an_unrelated_package_of_the_same_name_is_named() -> None:
    check = check_package("kernels", lambda _: Path("/opt/site-packages/kernels"))
    assert check.state == "wrong"
    assert "/opt/site-packages/kernels" in check.found and str(OURS) in check.found
    assert check_package("coordinator", lambda _: None).state == "wrong"


@pytest.mark.parametrize(
    ("versions", "state"),
    [
        ({"torch": "2.13.0+cpu", "fbgemm-gpu-cpu": "1.8.0"}, "ok"),
        ({"torch": "2.13.0", "fbgemm-gpu": "1.8.0"}, "ok"),
        ({"torch": "2.12.1", "fbgemm-gpu-cpu": "1.8.0"}, "wrong"),
        ({"torch": "2.13.0", "fbgemm-gpu-cpu": "1.7.0"}, "wrong"),
        ({"torch": "2.13.0"}, "wrong"),
        ({"fbgemm-gpu-cpu": "1.8.0"}, "wrong"),
        ({"torch": "2.13.0", "fbgemm-gpu": "1.8.0", "fbgemm-gpu-cpu": "1.8.0"}, "wrong"),
    ],
)
def test_torch_and_fbgemm_go_in_lockstep(versions: dict[str, str], state: str) -> None:
    check = check_lockstep(versions.get)
    assert check.state == state
    for version in versions.values():
        assert version in check.found


def test_a_missing_compiler_is_worth_a_note() -> None:
    assert check_compiler(lambda name: None).state == "note"
    assert check_compiler(lambda name: "/usr/bin/c++" if name == "c++" else None).found == "/usr/bin/c++"


def test_what_counts_as_failed() -> None:
    assert not has_failed([Check("a", "ok", ""), Check("b", "note", "")])
    assert has_failed([Check("a", "ok", ""), Check("b", "wrong", "")])


@pytest.mark.parametrize("lease_s", [1.0, 5.0, 60.0])
def test_each_time_out_is_well_above_the_one_before(lease_s: float) -> None:
    chain = TimeOuts(lease_s)
    assert chain.heartbeat_s * 4 < chain.lease_s < chain.silence_s < chain.join_s < chain.group_s


def test_the_time_outs_are_printed() -> None:
    checks = {check.name: (check.state, check.found) for check in time_outs()}
    assert checks["time-out lease"] == ("ok", "5 s")
    assert checks["time-out heartbeat"] == ("ok", "0.5 s")
