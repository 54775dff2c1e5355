"""Errors that exist only because a request travels over HTTP; needs no web framework, so the SDK shares it."""

from __future__ import annotations

from typing import Any

from geartrain.errors import GeartrainError


class MalformedBodyError(GeartrainError):
    """The body is not JSON that could be read in only one way. Facts: expected, got."""

    code = "body_malformed"
    http_status = 400
    exit_status = 2


class BodyTooLargeError(GeartrainError):
    """The body is larger than the API reads. Facts: limit_bytes."""

    code = "body_too_large"
    http_status = 413
    exit_status = 2


class ContentTypeError(GeartrainError):
    """The body is not declared as JSON. Facts: expected, got."""

    code = "content_type_unsupported"
    http_status = 415


class MethodNotAllowedError(GeartrainError):
    """The path exists, but not for this method. Facts: method, allowed."""

    code = "method_not_allowed"
    http_status = 405


class NotReadyError(GeartrainError):
    """Jobs cannot be run yet; the message is the reason."""

    code = "not_ready"
    http_status = 503


_BY_CODE: dict[str, type[GeartrainError]] = {
    kind.code: kind
    for kind in (MalformedBodyError, BodyTooLargeError, ContentTypeError, MethodNotAllowedError, NotReadyError)
}


def error_from_dict(fields: dict[str, Any]) -> GeartrainError:
    """The error that the `error` object of an answer describes, as an instance of its own class."""
    kind = _BY_CODE.get(str(fields.get("code")))
    if kind is None:
        return GeartrainError.from_dict(fields)
    facts = {name: value for name, value in fields.items() if name not in ("code", "message")}
    return kind(str(fields.get("message", "")), **facts)
