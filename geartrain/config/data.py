"""Where the data are and how their files are read."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from geartrain.config.section import Expect, Many, Section, Text, expected

TEXT_SEPARATORS = {"csv": ",", "tsv": "\t"}
"""Text formats with columns, and the separator each has when none is given."""


def _is_text(fields: dict[str, Any]) -> bool:
    return fields.get("format") in TEXT_SEPARATORS


def _check_separator(separator: str) -> str:
    if len(separator.encode()) != 1 or separator in '\n\r"\0':
        raise ValueError(separator)
    return separator


Files = Many[Text]


class DataConfig(Section):
    """The files of a job. Text formats learn their column names from `header` or `columns`, never from both."""

    root: Text = "."
    """Folder of the files; relative to the config file's folder. `${NAME}` is an environment variable."""
    format: Literal["csv", "tsv", "parquet", "libsvm"] = "csv"
    """Files that end in .gz or .zst are decompressed."""
    columns: Annotated[Many[Text], Field(min_length=1), Expect("a list of column names")] | None = None
    """Names of all columns of text files without a header line."""
    header: bool | None = Field(
        default_factory=lambda fields: fields.get("columns") is None if _is_text(fields) else None
    )
    """Text files: whether the first line of each names the columns; true unless `columns` is given."""
    separator: (
        Annotated[str, AfterValidator(_check_separator), Expect("one ASCII character, not a quote, newline or NUL")]
        | None
    ) = Field(default_factory=lambda fields: TEXT_SEPARATORS.get(fields.get("format", "")))
    """Between the columns of text files."""
    strip_whitespace: bool = False
    """Text files: remove blanks around every value."""
    missing: Many[str] = Field(default_factory=lambda fields: ("",) if _is_text(fields) else ())
    """Text files: values that mean "missing"; the empty one unless given."""
    shuffle: bool = True
    """Read the training files in another order in every pass; the order follows from `training.seed`."""
    train: Annotated[Files, Field(min_length=1), Expect("a list of at least one path or glob")]
    """Paths or globs under `root`."""
    valid: Files = ()
    """Read after every pass."""
    test: Files = ()
    """Read at the end, with the best pass's model."""
    group_by: Text | None = None
    """A categorical feature: AUC is also taken within each of its values (GAUC)."""

    @model_validator(mode="after")
    def _check_format(self) -> DataConfig:
        if self.format in TEXT_SEPARATORS:
            self._check_names()
            return self
        for name in ("columns", "header", "separator"):
            if getattr(self, name) is not None:
                raise expected(f"no {name} with format {self.format}", name)
        if self.strip_whitespace:
            raise expected(f"no strip_whitespace with format {self.format}", "strip_whitespace")
        if self.missing:
            raise expected(f"no missing values with format {self.format}", "missing")
        return self

    def _check_names(self) -> None:
        if self.separator is None:
            raise expected("one ASCII character, not a quote, newline or NUL", "separator")
        if self.header and self.columns is not None:
            raise expected("either columns or header: true", "columns")
        if not self.header and self.columns is None:
            raise expected("header: true, or columns with the names", "header")
        if self.columns is not None and len(set(self.columns)) < len(self.columns):
            repeated = next(name for name in self.columns if self.columns.count(name) > 1)
            raise expected(f"names that differ ({repeated!r} is there twice)", "columns")


def _text_of_integer(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class LabelSpec(Section):
    """The label: a column of 0 and 1, or a column and the values that count as 1."""

    column: Text
    positive: (
        Annotated[
            Many[Annotated[str, BeforeValidator(_text_of_integer)]],
            Field(min_length=1),
            Expect("a list of strings or integers"),
        ]
        | None
    ) = None
    """Values, in text form, that mean 1; all others mean 0. null: the column holds 0 and 1 only."""


def _label_of_name(value: Any) -> Any:
    return {"column": value} if isinstance(value, str) else value


Label = Annotated[LabelSpec, BeforeValidator(_label_of_name, json_schema_input_type=str | LabelSpec)]
