"""Whether a file has the columns that a job needs, in types that fit: told before training, not in the middle of it."""

from __future__ import annotations

from typing import Any

import pyarrow.types as pat

from geartrain.config import JobConfig
from geartrain.data.files import DataFile
from geartrain.data.hashing import is_list, is_text, key_kind
from geartrain.data.schema import DataSchema
from geartrain.errors import DataFileError

_NAMES_SHOWN = 20


class HeaderCheck:
    """Checks file after file; `key_kinds` collects whether a table's ids are integers or strings."""

    def __init__(self, config: JobConfig, schema: DataSchema) -> None:
        self._schema = schema
        self._fields = {feature.name: f"features.{place}.name" for place, feature in enumerate(config.features)}
        self._first_file: dict[str, str] = {}
        self.key_kinds: dict[str, str] = {}

    def file(self, path: str, file: DataFile) -> None:
        """Raises DataFileError with the first thing that is wrong with the columns of this file."""
        names = file.column_names()
        self._check_names(path, names)
        if self._schema.label is not None:
            self._check_label(path, file.column_type(self._schema.label.column))
        for numeric in self._schema.numerics:
            self._check_number(path, numeric.name, file.column_type(numeric.name))
        for slot in self._schema.slots:
            data_type = file.column_type(slot.name)
            if slot.kind == "bucketized":
                self._check_number(path, slot.name, data_type)
                self._check_table(path, slot.name, slot.table, "integer")
                continue
            kind = key_kind(data_type)
            if kind is None or (is_list(data_type) and slot.kind == "categorical"):
                raise _unfit(self._fields[slot.name], path, slot.name, "a column of integers or strings", data_type)
            if slot.kind == "sequence" and not (is_list(data_type) or kind == "string"):
                expected = "a column of lists or strings"
                raise _unfit(self._fields[slot.name], path, slot.name, expected, data_type)
            self._check_table(path, slot.name, slot.table, kind)

    def _check_names(self, path: str, names: tuple[str, ...]) -> None:
        label = None if self._schema.label is None else self._schema.label.column
        shown = ", ".join(names[:_NAMES_SHOWN]) + (", ..." if len(names) > _NAMES_SHOWN else "")
        missing = [name for name in self._schema.columns if name not in names]
        if missing:
            what = f"the label column {label}" if missing == [label] else f"columns {', '.join(missing)}"
            raise DataFileError(
                f"{path}: expected {what}, got {shown}",
                field="label.column" if missing[0] == label else self._fields[missing[0]],
                file=path,
                expected=what,
                value=shown,
                columns=missing,
            )
        for name in self._schema.columns:
            if names.count(name) > 1:
                raise DataFileError(
                    f"{path}: expected one column {name}, got {names.count(name)} of that name",
                    field=self._fields.get(name, "label.column"),
                    file=path,
                    expected=f"one column {name}",
                    value=shown,
                )

    def _check_label(self, path: str, data_type: Any) -> None:
        rule = self._schema.label
        assert rule is not None
        plain = data_type.value_type if pat.is_dictionary(data_type) else data_type
        if rule.positive is not None and not (is_text(plain) or pat.is_integer(plain)):
            raise _unfit("label.positive", path, rule.column, "a column of strings or integers", data_type)
        if not (is_text(plain) or _is_number(plain)):
            raise _unfit("label.column", path, rule.column, "a column of numbers, booleans or strings", data_type)

    def _check_number(self, path: str, name: str, data_type: Any) -> None:
        # Text files have strings only: there, each value is looked at when it is read.
        if not (_is_number(data_type) or (self._schema.format != "parquet" and is_text(data_type))):
            raise _unfit(self._fields[name], path, name, "a column of numbers", data_type)

    def _check_table(self, path: str, name: str, table: str, kind: str) -> None:
        known = self.key_kinds.setdefault(table, kind)
        if known != kind:
            raise DataFileError(
                f"{path}: column {name}: expected {known}s, as table {table} has from {self._first_file[table]}, "
                f"got {kind}s (the same id has another key as the other kind)",
                field=self._fields[name],
                file=path,
                expected=f"{known}s",
                value=f"{kind}s",
            )
        self._first_file.setdefault(table, path)


def _is_number(data_type: Any) -> bool:
    return bool(pat.is_integer(data_type) or pat.is_floating(data_type) or pat.is_boolean(data_type))


def _unfit(field: str, path: str, column: str, expected: str, got: Any) -> DataFileError:
    message = f"{path}: column {column}: expected {expected}, got type {got}"
    return DataFileError(message, field=field, file=path, expected=expected, value=str(got))
