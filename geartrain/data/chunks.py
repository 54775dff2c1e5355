"""Which rows there are: chunks of data files, and the index of all chunks of a job's three splits.

The coordinator builds the index once per job and sends it to every worker as plain data, so that all of them agree on
what position i of a pass means.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from geartrain.errors import WireError

SPLITS = ("train", "valid", "test")

Statistics: TypeAlias = dict[str, tuple[float, float]]
"""Mean and standard deviation per numeric feature whose transform is `standard`."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A row range of a data file: what is read and decoded at once.

    `file` is an absolute path. `first_row` counts data rows of the file from 0 (header and blank lines not counted).
    Text: bytes [byte_start, byte_stop) of the decompressed file hold exactly the `num_rows` rows; `row_group` is -1.
    Parquet: `row_group` names it and both byte positions are 0.
    """

    file: str
    first_row: int
    num_rows: int
    byte_start: int
    byte_stop: int
    row_group: int


@dataclass(frozen=True, slots=True)
class DatasetIndex:
    """All chunks of a job, in the order of its files.

    `standard` holds what the scan of the train split found, so that training, evaluation and prediction agree.
    `key_kinds` says per table whether its ids are integers or strings (the same id is another key in the other kind).
    """

    train: tuple[Chunk, ...] = ()
    valid: tuple[Chunk, ...] = ()
    test: tuple[Chunk, ...] = ()
    standard: Statistics = field(default_factory=dict)
    key_kinds: dict[str, str] = field(default_factory=dict)

    def chunks(self, split: str) -> tuple[Chunk, ...]:
        """The chunks of `train`, `valid` or `test`; ValueError for another name."""
        if split not in SPLITS:
            raise ValueError(f"no split named {split!r}; expected one of {', '.join(SPLITS)}")
        found: tuple[Chunk, ...] = getattr(self, split)
        return found

    def num_rows(self, split: str) -> int:
        return sum(chunk.num_rows for chunk in self.chunks(split))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for messages and checkpoints; file names stand once, chunks refer to them by number."""
        files: dict[str, int] = {}
        splits = {
            split: [
                [
                    files.setdefault(chunk.file, len(files)),
                    chunk.first_row,
                    chunk.num_rows,
                    chunk.byte_start,
                    chunk.byte_stop,
                    chunk.row_group,
                ]
                for chunk in self.chunks(split)
            ]
            for split in SPLITS
        }
        standard = {name: [mean, std] for name, (mean, std) in self.standard.items()}
        return {"files": list(files), **splits, "standard": standard, "key_kinds": dict(self.key_kinds)}

    @staticmethod
    def from_dict(fields: dict[str, Any]) -> DatasetIndex:
        """The index that `to_dict` described; WireError when it is not one."""
        try:
            files = fields["files"]
            splits = {split: tuple(Chunk(files[row[0]], *row[1:]) for row in fields[split]) for split in SPLITS}
            standard = {name: (float(pair[0]), float(pair[1])) for name, pair in fields["standard"].items()}
            return DatasetIndex(**splits, standard=standard, key_kinds=dict(fields["key_kinds"]))
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            message = f"the index of the data cannot be read: {type(error).__name__}: {error}"
            raise WireError(message, expected="DatasetIndex.to_dict()", got=str(error)) from error
