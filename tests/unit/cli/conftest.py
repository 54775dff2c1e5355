from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_settings_of_the_shell(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What whoever runs the tests has exported must not change them."""
    for name in ("GEARTRAIN_DATA", "GEARTRAIN_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GEARTRAIN_HOME", str(tmp_path_factory.mktemp("home")))
