"""Parked pulls: released by their version, given back at their deadline, replaced by a repetition."""

from __future__ import annotations

import pytest

from embedding_tier import parking
from embedding_tier.parking import ParkingLot, VersionTimes
from geartrain.errors import BusyError


def test_release_takes_what_waited_for_this_version_or_less() -> None:
    lot: ParkingLot[str] = ParkingLot()
    for version in (3, 4, 5):
        lot.park(("w0", 1, version), version, 10.0, f"v{version}")
    assert lot.release(4) == ["v3", "v4"]
    assert lot.release(4) == []
    assert lot.clear() == ["v5"]


def test_expired_takes_what_is_past_its_deadline() -> None:
    lot: ParkingLot[str] = ParkingLot()
    lot.park(("w0", 1, 1), 9, 1.0, "early")
    lot.park(("w1", 1, 1), 9, 2.0, "late")
    assert lot.expired(0.5) == []
    assert lot.expired(1.0) == ["early"]
    assert len(lot) == 1


def test_a_repetition_replaces_and_another_incarnation_does_not() -> None:
    lot: ParkingLot[str] = ParkingLot()
    lot.park(("w0", 1, 1), 2, 1.0, "first")
    lot.park(("w0", 1, 1), 2, 1.0, "again")
    lot.park(("w0", 2, 1), 2, 1.0, "restarted")
    assert lot.release(2) == ["again", "restarted"]


def test_the_lot_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "MAX_PARKED", 1)
    lot: ParkingLot[str] = ParkingLot()
    lot.park(("w0", 1, 1), 2, 1.0, "first")
    lot.park(("w0", 1, 1), 2, 1.0, "again")
    with pytest.raises(BusyError):
        lot.park(("w0", 1, 2), 2, 1.0, "more")


def test_a_request_waited_until_its_version_was_there() -> None:
    times = VersionTimes()
    times.reached(1, 10.0)
    times.reached(2, 12.0)
    times.reached(2, 15.0)
    times.reached(4, 16.0)
    assert times.waited_s(1, arrived_s=9.0) == pytest.approx(1.0)
    assert times.waited_s(2, arrived_s=9.0) == pytest.approx(3.0), "a decision that is repeated changes nothing"
    assert times.waited_s(2, arrived_s=13.0) == 0.0, "it was there before the request"
    assert times.waited_s(3, arrived_s=13.0) == pytest.approx(3.0), "it came together with 4"
    assert times.waited_s(0, arrived_s=9.5) == 0.0, "it was there from the beginning"
    assert times.waited_s(5, arrived_s=9.5) == 0.0, "it is there, but nobody has noted it yet"
    times.clear()
    assert times.waited_s(2, arrived_s=9.0) == 0.0


def test_only_the_last_versions_are_remembered() -> None:
    times = VersionTimes()
    for version in range(1, 1000):
        times.reached(version, float(version))
    assert times.waited_s(999, arrived_s=990.0) == pytest.approx(9.0)
    assert times.waited_s(1000 - parking.REMEMBERED_VERSIONS, arrived_s=0.0) > 900
    assert times.waited_s(1, arrived_s=0.0) == 0.0
