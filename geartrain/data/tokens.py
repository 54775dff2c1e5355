"""How many tokens each row has, without reading the rest of it. Tokens are the values in sequence slots."""

from __future__ import annotations

from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from geartrain.config import JobConfig
from geartrain.data.chunks import Chunk, DatasetIndex
from geartrain.data.columns import bag_sizes
from geartrain.data.files import OpenFiles
from geartrain.data.schema import DataSchema, Slot

MOST_COUNTED = 2**16 - 1
"""A longer row counts as this many: it costs more than any other, and two bytes a row are enough to say so."""


def count_tokens(config: JobConfig, index: DatasetIndex, split: str = "train") -> NDArray[np.uint16] | None:
    """Tokens uint16[rows of the split] in file order, as batches have them (`max_length` applied, empty values left
    out); None for a job without sequence features.

    Only the columns of sequences are read. Raises BadRowError or DataFileError.
    """
    schema = DataSchema.from_config(config, index.standard, labeled=False)
    sequences = [slot for slot in schema.slots if slot.kind == "sequence"]
    if not sequences:
        return None
    with closing(OpenFiles(schema)) as files:
        counts = [_count(chunk, sequences, schema, files) for chunk in index.chunks(split)]
    return np.concatenate(counts or [np.zeros(0, dtype=np.uint16)])


def _count(chunk: Chunk, sequences: list[Slot], schema: DataSchema, files: OpenFiles) -> NDArray[np.uint16]:
    columns = files.get(chunk.file).read(chunk, list(dict.fromkeys(slot.name for slot in sequences)))
    total = np.zeros(chunk.num_rows, dtype=np.int64)
    for slot in sequences:
        total += bag_sizes(columns[slot.name], slot, schema.text)
    return np.minimum(total, MOST_COUNTED).astype(np.uint16)
