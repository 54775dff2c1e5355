"""Stand-ins for the roles' processes: `fake_role.py ROLE --option=value ...`.

The coordinator answers the few calls of the API that a launcher makes; the job is in training until the test writes how
it ended to OUTPUT/job.json. With OUTPUT/ending there it answers that it has ended, and with OUTPUT/stopping it ends.
Servers and workers wait; one whose device is a FIFO fails when it is written to, or ends well after the word "stop".
"""

from __future__ import annotations

import json
import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from geartrain.launch.lifeline import PARENT_VARIABLE, bind_to_parent, watch_parent


def fake_command(role: str, options: tuple[str, ...]) -> list[str]:
    """For `LocalCluster`: the stand-in in place of the role."""
    return [sys.executable, __file__, role, *options]


def main() -> None:
    if os.environ.get("FAKE_LIFELINE") == "thread":
        watch_parent(int(os.environ[PARENT_VARIABLE]))
    else:
        bind_to_parent(os.environ)
    role = sys.argv[1]
    options = dict(option.removeprefix("--").split("=", 1) for option in sys.argv[2:] if "=" in option)
    if role == "coordinator":
        coordinate(Path(options["output"]), Path(options["ready-file"]))
    if options.get("device") == "broken":
        sys.exit("a traceback\nOSError: torch does not fit")
    if options.get("device", "").startswith("/"):
        if Path(options["device"]).read_text() == "stop":
            sys.exit(0)
        sys.exit("error: row 7: 'x' is no number")
    while True:
        signal.pause()


def coordinate(output: Path, ready_file: Path) -> None:
    job = {"id": "job-1", "name": "fake", "state": "training", "reason": "", "error": None, "progress": {}}

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            (output / "submitted.json").write_bytes(body)
            self.send(201, {"id": "job-1", "state": "queued"})

        def do_GET(self) -> None:
            if self.path == "/readyz":
                self.send(200, {"status": "ready", "reason": "all are there"})
                return
            if (output / "ending").exists():
                error = {"code": "role_died", "message": "the coordinator has ended: full", "role": "coordinator"}
                self.send(503, {"error": error})
                return
            if (output / "stopping").exists():
                os._exit(0)
            ended = output / "job.json"
            self.send(200, {**job, **(json.loads(ended.read_text()) if ended.exists() else {})})

        def do_DELETE(self) -> None:
            (output / "cancelled").touch()
            self.send(200, {**job, "state": "cancelled"})

        def send(self, status: int, answer: dict[str, object]) -> None:
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    fresh = ready_file.with_suffix(".fresh")
    fresh.write_text(json.dumps({"url": f"http://127.0.0.1:{server.server_port}", "control": "ipc://none"}))
    fresh.replace(ready_file)
    server.serve_forever()


if __name__ == "__main__":
    main()
