"""Reading a JSON body strictly: bounded in size and depth, and with only one meaning."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from api.errors import validation_error
from api.request_errors import BodyTooLargeError, ContentTypeError, MalformedBodyError

Model = TypeVar("Model", bound=BaseModel)

MAX_BODY_BYTES = 1 << 20
MAX_DEPTH = 64
"""Levels of nesting; far more than a config has, far fewer than the interpreter's stack."""


def body_as(model: type[Model]) -> Callable[[Request], Awaitable[Model]]:
    """What a route depends on to be given its JSON body as a `model`; `ConfigError` names the field that is wrong."""

    async def read(request: Request) -> Model:
        body = await read_json(request)
        try:
            return model.model_validate(body)
        except ValidationError as error:
            raise validation_error([{**first, "loc": ("body", *first["loc"])} for first in error.errors()]) from error

    return read


async def read_json(request: Request) -> Any:
    """The decoded body. Raises `ContentTypeError`, `BodyTooLargeError` or `MalformedBodyError`.

    Only bodies declared as JSON are read: a web page of another origin cannot send those without being asked first.
    """
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        message = f"the body must have the content type application/json, not {content_type or 'none'}"
        raise ContentTypeError(message, expected="application/json", got=content_type)
    return parse_json(await _read_bounded(request))


async def _read_bounded(request: Request) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > MAX_BODY_BYTES:
        raise _too_large()
    parts, num_bytes = [], 0
    async for part in request.stream():
        num_bytes += len(part)
        if num_bytes > MAX_BODY_BYTES:
            raise _too_large()
        parts.append(part)
    return b"".join(parts)


def _too_large() -> BodyTooLargeError:
    return BodyTooLargeError(f"the body is larger than {MAX_BODY_BYTES} bytes", limit_bytes=MAX_BODY_BYTES)


def parse_json(body: bytes) -> Any:
    """Plain data from UTF-8 JSON.

    Refused with `MalformedBodyError`: what is not JSON (NaN and Infinity included), a name given twice in one object,
    text that is not Unicode, and nesting deeper than `MAX_DEPTH`.
    """
    try:
        value = json.loads(body.decode(), object_pairs_hook=_object_of_unique_names, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise _malformed(f"byte {error.start} is not UTF-8") from error
    except RecursionError as error:
        raise _malformed(f"it is nested deeper than {MAX_DEPTH} levels") from error
    except ValueError as error:
        raise _malformed(str(error)) from error
    _check_values(value, MAX_DEPTH)
    return value


def _object_of_unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise _malformed(f"the name {name!r} stands twice in one object")
        fields[name] = value
    return fields


def _refuse_constant(constant: str) -> NoReturn:
    raise _malformed(f"{constant} is not a JSON number")


def _check_values(value: Any, levels_left: int) -> None:
    if isinstance(value, str):
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise _malformed("a text holds half a surrogate pair")
    elif isinstance(value, dict | list):
        if levels_left == 0:
            raise _malformed(f"it is nested deeper than {MAX_DEPTH} levels")
        items = [*value, *value.values()] if isinstance(value, dict) else value
        for item in items:
            _check_values(item, levels_left - 1)


def _malformed(got: str) -> MalformedBodyError:
    return MalformedBodyError(f"the body is not JSON that can be used: {got}", expected="JSON", got=got)
