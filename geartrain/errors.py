"""Every error that a user or another role can see: a stable code, facts as fields, one wire form.

`code` never changes once published. `http_status` is the only place where an error meets HTTP; `exit_status` the only
place where it meets a shell: 2 for a wrong command, config, file or header, 1 for what fails later.
"""

from __future__ import annotations

from typing import Any, ClassVar


class GeartrainError(Exception):
    """Base of all errors with facts.

    `facts` holds what the message was made from (field, file, row, column, value, expected, role, ...); only plain
    JSON values, so that the error crosses the wire unchanged.
    """

    code: ClassVar[str] = "internal"
    http_status: ClassVar[int] = 500
    exit_status: ClassVar[int] = 1

    def __init__(self, message: str, /, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts

    def to_dict(self) -> dict[str, Any]:
        """The wire and HTTP form: `{"code", "message", ...facts}`."""
        return {"code": self.code, "message": self.message, **self.facts}

    @staticmethod
    def from_dict(fields: dict[str, Any]) -> GeartrainError:
        """The error that `to_dict` described; an unknown code becomes the base class and keeps its code as a fact."""
        rest = {name: value for name, value in fields.items() if name not in ("code", "message")}
        code = str(fields.get("code", "internal"))
        kind = _BY_CODE.get(code)
        if kind is None:
            return GeartrainError(str(fields.get("message", "")), **{**rest, "original_code": code})
        return kind(str(fields.get("message", "")), **rest)


class ConfigError(GeartrainError):
    """A field of the config, or the command, is wrong. Facts: field, value, expected."""

    code = "config_invalid"
    http_status = 422
    exit_status = 2


class DataFileError(GeartrainError):
    """A data file is missing, empty, outside the allowed roots, or its header is wrong. Facts: field, file."""

    code = "data_file_invalid"
    http_status = 422
    exit_status = 2


class BadRowError(GeartrainError):
    """A row of a data file cannot be used. Facts: file, row (1-based, header not counted), column, value."""

    code = "bad_row"
    http_status = 422


class PortInUseError(GeartrainError):
    """An address to listen on is taken. Facts: address."""

    code = "port_in_use"
    exit_status = 2


class NotFoundError(GeartrainError):
    """What a call names does not exist."""

    code = "not_found"
    http_status = 404


class ConflictError(GeartrainError):
    """The call does not fit the state of what it names."""

    code = "conflict"
    http_status = 409


class AuthError(GeartrainError):
    """The token of the cluster, or of the API, is missing or wrong."""

    code = "unauthorized"
    http_status = 401


class WireError(GeartrainError):
    """A message that cannot be decoded, or whose sizes do not fit. Facts: expected, got."""

    code = "wire_invalid"


class DeadlineError(GeartrainError):
    """A peer did not answer in time. Facts: role, address, deadline_s."""

    code = "deadline_exceeded"
    http_status = 504


class StaleMessageError(GeartrainError):
    """A message of a lower term, an old incarnation or a group that no longer lives. Facts: got, current."""

    code = "stale_message"
    http_status = 409


class BusyError(GeartrainError):
    """Staging is full: the sender has more in flight than its grants allow."""

    code = "busy"
    http_status = 503


class VersionError(GeartrainError):
    """A version that a server cannot serve, or a gap in the decisions. Facts: got, current."""

    code = "version_unavailable"
    http_status = 409


class RoleDiedError(GeartrainError):
    """A coordinator, server or worker process is gone. Facts: role."""

    code = "role_died"
    http_status = 503


class CheckpointError(GeartrainError):
    """A checkpoint is incomplete, damaged or of another model. Facts: file, field, expected."""

    code = "checkpoint_invalid"
    http_status = 422
    exit_status = 2


class DeviceMemoryError(GeartrainError):
    """A step is too large for the memory of a worker's device. Facts: device, num_samples, max_samples (None: not
    known)."""

    code = "device_memory"


class NonFiniteError(GeartrainError):
    """Too many steps had NaN, Inf or values above 1e12 in their gradients. Facts: num_skipped, allowed."""

    code = "non_finite_gradient"


class ConservationError(GeartrainError):
    """The journal shows samples lost, applied twice, or applied without an arrival. Facts: pass_index, start, stop."""

    code = "conservation_violated"


class KernelError(GeartrainError):
    """An array handed to a kernel has the wrong shape, dtype or range. Facts: argument, expected, got."""

    code = "kernel_argument"


class DownloadError(GeartrainError):
    """A data set could not be fetched, or is not what its hash says. Facts: name, expected."""

    code = "download_failed"


def _tree(kind: type[GeartrainError]) -> list[type[GeartrainError]]:
    return [kind, *(below for sub in kind.__subclasses__() for below in _tree(sub))]


_BY_CODE: dict[str, type[GeartrainError]] = {kind.code: kind for kind in _tree(GeartrainError)}
