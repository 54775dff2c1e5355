"""The API on a real socket: ports, streams that come as they happen, and an end that does not hang."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest
import uvicorn

from api.app import create_app
from api.body import MAX_BODY_BYTES
from api.events import StreamControl
from api.sdk import GeartrainClient
from api.serve import ApiServer, listen
from api.testing import FakeFacade
from geartrain.errors import ConfigError, DeadlineError, GeartrainError, PortInUseError


@pytest.fixture
def facade() -> FakeFacade:
    return FakeFacade()


@pytest.fixture
def server(facade: FakeFacade) -> Iterator[ApiServer]:
    app = create_app(facade, api_token="token", streams=StreamControl(poll_s=0.01))
    running = ApiServer(app, "127.0.0.1", 0)
    running.start()
    yield running
    running.stop()


def client_of(server: ApiServer) -> GeartrainClient:
    return GeartrainClient(f"http://127.0.0.1:{server.port}", "token", deadline_s=10.0)


def test_the_sdk_over_a_socket(server: ApiServer, facade: FakeFacade) -> None:
    with client_of(server) as client:
        job = client.submit({"name": "über"})["id"]
        assert facade.configs == [{"name": "über"}]
        assert client.cancel(job)["state"] == "cancelled"
        assert client.wait(job)["state"] == "cancelled"


def test_hardware_is_told_and_set_over_a_socket(server: ApiServer, facade: FakeFacade) -> None:
    with client_of(server) as client:
        assert client.put_portrait("w0", 1500.0) == client.portraits()[0]
        assert (client.portrait("w0")["source"], facade.portrait_list[0]["samples_per_s"]) == ("set", 1500.0)
        assert [group["members"] for group in client.groups()["groups"]] == [["w0", "w1"], ["w2", "w3"]]
        assert client.set_window("sync", 0)["mode"] == client.window()["mode"] == "sync"
    body, headers = b'{"samples_per_s": 1}', {"Content-Type": "application/json"}
    url = f"http://127.0.0.1:{server.port}/v1/portraits/w0"
    assert httpx.put(url, content=body, headers=headers, timeout=10.0).status_code == 401
    assert facade.portrait_list[0]["samples_per_s"] == 1500.0


def test_events_arrive_while_the_job_runs(server: ApiServer, facade: FakeFacade) -> None:
    job = facade.add_job("a")
    facade.add_event("a", "started")
    with client_of(server) as client:
        events = client.events("a")
        assert next(events)["kind"] == "started"
        # Only what was sent before this line can have been received by it.
        facade.add_event("a", "evaluated")
        assert next(events)["kind"] == "evaluated"
        job["state"] = "succeeded"
        assert list(events) == []


def test_a_body_over_the_limit_is_answered_and_not_cut_off(server: ApiServer) -> None:
    body = b" " * (8 * MAX_BODY_BYTES)
    headers = {"Authorization": "Bearer token", "Content-Type": "application/json"}
    response = httpx.post(f"http://127.0.0.1:{server.port}/v1/jobs", content=body, headers=headers, timeout=10.0)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_large")


def test_a_taken_port_is_an_error_before_anything_starts(server: ApiServer, facade: FakeFacade) -> None:
    threads = threading.active_count()
    with pytest.raises(PortInUseError, match=f"127.0.0.1:{server.port}") as caught:
        ApiServer(create_app(facade, api_token=None), "127.0.0.1", server.port)
    assert caught.value.exit_status == 2
    assert threading.active_count() == threads


def test_the_port_is_taken_from_construction_on(facade: FakeFacade) -> None:
    waiting = ApiServer(create_app(facade, api_token=None), "127.0.0.1", 0)
    with pytest.raises(PortInUseError):
        listen("127.0.0.1", waiting.port)
    port = waiting.port
    waiting.stop()
    listen("127.0.0.1", port).close()


def test_stop_ends_open_streams_and_frees_the_port(facade: FakeFacade) -> None:
    facade.add_job("a")
    facade.add_event("a", "started")
    server = ApiServer(create_app(facade, api_token="token", streams=StreamControl(poll_s=0.01)), "127.0.0.1", 0)
    port = server.start()
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with client_of(server) as client:
        events = client.events("a", reconnect_s=0.0)
        assert next(events)["kind"] == "started"
        server.stop()
        server.stop()
        with pytest.raises(DeadlineError):
            next(events)
    assert "geartrain-api" not in [thread.name for thread in threading.enumerate()]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    with closing(listen("127.0.0.1", port)) as again:
        assert again.getsockname()[1] == port


@pytest.mark.parametrize(("host", "port"), [("x" * 70, 0), ("203.0.113.7", 0), ("127.0.0.1", 70000), ("127.0.0.1", -1)])
def test_an_address_that_cannot_be_listened_on(host: str, port: int) -> None:
    with pytest.raises(ConfigError) as caught:
        listen(host, port)
    assert caught.value.facts["value"] == f"{host}:{port}"


def test_a_server_that_cannot_run_says_so_instead_of_hanging(
    facade: FakeFacade, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_server: uvicorn.Server, sockets: list[socket.socket] | None = None) -> None:
        raise SystemExit(3)

    monkeypatch.setattr(uvicorn.Server, "startup", fail)
    server = ApiServer(create_app(facade, api_token=None), "127.0.0.1", 0)
    port = server.port
    with pytest.raises(GeartrainError, match="did not start"):
        server.start()
    server.stop()
    listen("127.0.0.1", port).close()


def test_nobody_listening_is_one_clear_line() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with (
            GeartrainClient(f"http://127.0.0.1:{port}") as client,
            pytest.raises(DeadlineError, match="Connection refused"),
        ):
            client.jobs()


@pytest.mark.parametrize(
    ("module", "foreign"), [("api.sdk", ["fastapi", "uvicorn", "torch", "numpy"]), ("api.serve", ["torch"])]
)
def test_what_each_end_needs(module: str, foreign: list[str]) -> None:
    code = f"import sys, {module}; print(*[name for name in {foreign} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""
