"""Building the index of a job: files are found, headers checked and rows counted before anything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from glob import glob, has_magic
from pathlib import Path
from typing import Any

import numpy as np

from geartrain.config import JobConfig, resolve_inside
from geartrain.data.chunks import SPLITS, Chunk, DatasetIndex, Statistics
from geartrain.data.columns import Origin, numbers
from geartrain.data.files import DataFile, OpenFiles
from geartrain.data.header import HeaderCheck
from geartrain.data.schema import DataSchema
from geartrain.errors import DataFileError

__all__ = ["Chunk", "DatasetIndex", "build_index", "find_files"]


def build_index(
    config: JobConfig,
    splits: Sequence[str] = SPLITS,
    standard: Mapping[str, tuple[float, float]] | None = None,
    labeled: bool = True,
    allowed_roots: Sequence[Path] = (),
) -> DatasetIndex:
    """The index of the files that `config.data` names (its root is absolute).

    `splits`: which of train, valid and test to look for. `standard`: statistics to keep instead of scanning the train
    split for them. `labeled` False: the files need no label column. `allowed_roots`: where links that a glob finds may
    lead, beside the root.

    Raises DataFileError (facts field, file, expected, value) when a file is missing, unreadable, empty or without a
    column, a column's type does not fit its feature, or a table would hold integers and strings; ConfigError when a
    glob leads outside the roots; BadRowError when the scan for statistics meets a value that is no number.
    """
    schema = DataSchema.from_config(config, labeled=labeled)
    found = {split: find_files(config, split, allowed_roots) for split in splits}
    check = HeaderCheck(config, schema)
    with closing(OpenFiles(schema)) as files:
        for paths in found.values():
            for path in paths:
                check.file(path, files.get(path))
        chunks = {split: _scan(paths, split, files) for split, paths in found.items()}
        if standard is None:
            standard = _standard(chunks.get("train", ()), schema, files)
    return DatasetIndex(**chunks, standard=dict(standard), key_kinds=check.key_kinds)


def find_files(config: JobConfig, split: str, allowed_roots: Sequence[Path] = ()) -> list[str]:
    """Absolute paths of the files of a split, in the config's order (a glob's in order of name).

    Raises DataFileError for a missing file, a glob without a match, and a file that is named twice in the split.
    """
    root = Path(config.data.root)
    paths: dict[str, None] = {}
    for place, pattern in enumerate(getattr(config.data, split)):
        field = f"data.{split}.{place}"
        for path in _match(root, pattern, field, allowed_roots):
            if path in paths:
                raise _no_file(field, path, "a file that nothing before it in the list names", pattern)
            paths[path] = None
    return list(paths)


def _match(root: Path, pattern: str, field: str, allowed_roots: Sequence[Path]) -> list[str]:
    literal = root / pattern
    if literal.is_file():
        return [str(literal)]
    if not has_magic(pattern):
        raise _no_file(field, str(literal), "a file", "a folder" if literal.is_dir() else "no such file")
    # Unlike `Path.glob`, this leaves out hidden files.
    found = glob(pattern, root_dir=root, recursive=True)  # noqa: PTH207
    names = sorted(name for name in found if (root / name).is_file())
    if not names:
        raise _no_file(field, str(literal), "a glob that matches at least one file", pattern)
    return [str(resolve_inside(root, name, allowed_roots, field)) for name in names]


def _no_file(field: str, file: str, expected: str, value: str) -> DataFileError:
    message = f"{field}: expected {expected}, got {value} ({file})"
    return DataFileError(message, field=field, file=file, expected=expected, value=value)


def _scan(paths: Sequence[str], split: str, files: OpenFiles) -> tuple[Chunk, ...]:
    chunks: list[Chunk] = []
    for path in paths:
        found = files.get(path).scan()
        if not found:
            raise _no_file(f"data.{split}", path, "a file with at least one row", "an empty data file")
        chunks += found
    return tuple(chunks)


def _standard(chunks: Sequence[Chunk], schema: DataSchema, files: OpenFiles) -> Statistics:
    """Mean and deviation over all rows of the features that ask for them."""
    moments = {numeric.name: _Moments() for numeric in schema.numerics if numeric.transform == "standard"}
    if not moments:
        return {}
    for chunk in chunks:
        file: DataFile = files.get(chunk.file)
        columns = file.read(chunk, list(moments))
        for name, so_far in moments.items():
            values, missing = numbers(columns[name], name, schema.text, Origin(chunk.file, chunk.first_row))
            so_far.add(values[~missing])
    found = {name: so_far.result() for name, so_far in moments.items()}
    for name, result in found.items():
        if not np.isfinite(result).all():
            raise DataFileError(
                f"column {name}: expected numbers whose mean and deviation are finite (transform: standard), "
                f"got a mean of {result[0]} and a deviation of {result[1]}",
                field="data.train",
                column=name,
                expected="numbers whose mean and deviation are finite",
                value=[str(moment) for moment in result],
            )
    return found


class _Moments:
    """Mean and population deviation of numbers that come in parts (Chan, Golub and LeVeque 1979)."""

    def __init__(self) -> None:
        self._count = 0
        self._mean = 0.0
        self._squares = 0.0

    def add(self, values: np.ndarray[Any, np.dtype[np.float64]]) -> None:
        if not len(values):
            return
        count = self._count + len(values)
        with np.errstate(over="ignore", invalid="ignore"):  # the result says so
            mean = float(values.mean())
            apart = mean - self._mean
            self._squares += float(np.square(values - mean).sum()) + apart * apart * self._count * len(values) / count
        self._mean += apart * len(values) / count
        self._count = count

    def result(self) -> tuple[float, float]:
        """(mean, deviation); a deviation of 0 (a constant, or no value at all) becomes 1, to divide by."""
        deviation = float(np.sqrt(self._squares / self._count)) if self._count else 0.0
        return self._mean, deviation or 1.0
