"""What all answers have in common."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """An answer keeps fields that are not listed: a newer coordinator may tell more."""

    model_config = ConfigDict(extra="allow")

    example: ClassVar[dict[str, Any]]


class ErrorFacts(Answer):
    """An error: its kind, one line for people, and the facts the line was made from."""

    code: str = Field(description="Stable name of the kind of error.")
    message: str = Field(description="One line for people.")
    field: str | None = Field(default=None, description="Dotted path of the field that is wrong.")

    example: ClassVar[dict[str, Any]] = {
        "code": "config_invalid",
        "message": "training.batch_size: 0 is not a whole number of at least 1",
        "field": "training.batch_size",
        "value": 0,
        "expected": "a whole number of at least 1",
    }


class ErrorAnswer(BaseModel):
    """What every call answers that fails."""

    error: ErrorFacts

    example: ClassVar[dict[str, Any]] = {"error": ErrorFacts.example}
