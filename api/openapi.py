"""Pieces of the OpenAPI document that every route needs: examples of its answers and of its errors."""

from __future__ import annotations

from typing import Any, TypeAlias

from pydantic import BaseModel

from api.body import MAX_BODY_BYTES
from api.schemas import ErrorAnswer, ErrorFacts

Responses: TypeAlias = dict[int | str, dict[str, Any]]

_REFUSALS: dict[int, tuple[str, dict[str, Any]]] = {
    400: ("The body is not JSON.", {"code": "body_malformed", "message": "the body is not JSON that can be used: …"}),
    401: ("No token, or a wrong one.", {"code": "unauthorized", "message": "this call needs the header …"}),
    404: ("There is no such thing.", {"code": "not_found", "message": "there is no job movielens-deepfm-9"}),
    409: ("Not in this state.", {"code": "conflict", "message": "job movielens-deepfm-1 has ended: succeeded"}),
    413: ("The body is too large.", {"code": "body_too_large", "message": f"… larger than {MAX_BODY_BYTES} bytes"}),
    415: ("The body is not declared as JSON.", {"code": "content_type_unsupported", "message": "the body must have …"}),
    422: ("A field is wrong.", ErrorFacts.example),
    503: ("Not yet.", {"code": "not_ready", "message": "1 of 2 servers registered"}),
}


def answer(
    example: Any, *, status: int = 200, description: str = "Done.", media: str = "application/json"
) -> Responses:
    """The entry of a successful answer with its literal example."""
    return {status: {"description": description, "content": {media: {"example": example}}}}


def refusals(*statuses: int) -> Responses:
    """The entries of the errors that a call can answer with, each with an example; 401 is always among them."""
    return {
        status: {
            "model": ErrorAnswer,
            "description": _REFUSALS[status][0],
            "content": {"application/json": {"example": {"error": _REFUSALS[status][1]}}},
        }
        for status in (401, *statuses)
    }


def request_body(model: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    """The entry of a JSON body, which routes read by themselves (`api.body`), with its literal example."""
    content = {"application/json": {"schema": model.model_json_schema(), "example": example}}
    return {"requestBody": {"required": True, "content": content}}
