"""What every section of the config is built from: a frozen pydantic model and named value types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetCoreSchemaHandler, Strict, model_validator
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

Item = TypeVar("Item")


@dataclass(frozen=True)
class Expect:
    """Annotation that replaces every validation error of a value by "expected `text`"."""

    text: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.custom_error_schema(
            handler(source),
            custom_error_type="expected",
            custom_error_message="expected {expected}",
            custom_error_context={"expected": self.text},
        )


def expected(text: str, field: str = "") -> PydanticCustomError:
    """The error that a validator raises; `field` names a field below the value that is being validated."""
    return PydanticCustomError("expected", "expected {expected}", {"expected": text, "field": field})


class Section(BaseModel):
    """A mapping of known fields: frozen, unknown fields refused, no conversion between types, no NaN or infinity."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_fields(cls, given: Any) -> Any:
        if isinstance(given, dict):
            for name in given:
                if name not in cls.model_fields:
                    known = ", ".join(cls.model_fields)
                    raise PydanticCustomError("unknown_field", "unknown field", {"field": str(name), "expected": known})
        return given


MAX_SIZE = 1 << 16
_FLOAT32_MIN, _FLOAT32_MAX = 2.0**-126, (2.0 - 2.0**-23) * 2.0**127


def within_int64(value: Item) -> Item:
    """`value` if messages and native code can carry it."""
    if isinstance(value, int) and value >= 2**63:
        raise expected("an integer < 2^63")
    return value


def _within_float32(value: float) -> float:
    """`value` if it neither becomes 0 nor infinity where the arithmetic is float32."""
    if value and not _FLOAT32_MIN <= abs(value) <= _FLOAT32_MAX:
        raise expected("a number in the range of float32 (1.2e-38 to 3.4e38)")
    return value


def _within_size(value: int) -> int:
    if value > MAX_SIZE:
        raise expected(f"an integer <= {MAX_SIZE}")
    return value


PositiveInt = Annotated[int, Field(ge=1), Expect("an integer >= 1"), AfterValidator(within_int64)]
CountInt = Annotated[int, Field(ge=0), Expect("an integer >= 0"), AfterValidator(within_int64)]
Size = Annotated[int, Field(ge=1), Expect("an integer >= 1"), AfterValidator(_within_size)]
"""Of a vector or layer: a larger one is a slip, and would only be found out by running out of memory."""
Float32 = AfterValidator(_within_float32)
PositiveNumber = Annotated[float, Field(gt=0), Expect("a number > 0"), Float32]
NonNegativeNumber = Annotated[float, Field(ge=0), Expect("a number >= 0"), Float32]
UnitNumber = Annotated[float, Field(ge=0, lt=1), Expect("a number >= 0 and < 1")]
"""A share that may be zero but not one: dropout, the betas of Adam."""

Text = Annotated[str, Field(min_length=1), Expect("a string that is not empty")]
Many = Annotated[tuple[Item, ...], Strict(False)]
"""A YAML list, kept as a tuple."""
