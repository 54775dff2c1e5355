"""Which keys of a table get a row, and how many rows there may be: from a table's settings to what its store obeys."""

from __future__ import annotations

from embedding_tier.expiry import Expiry
from embedding_tier.message_checks import count_in, kind_in, number_in
from geartrain.errors import ConfigError
from geartrain.wire.messages import TableSpec
from kernels.initializer import initializer_seed
from kernels.row_life import SKETCH_BYTES, RowLife

_MIB = 1 << 20
_NEEDED = {"always": set[str](), "probability": {"p"}, "count": {"n"}}
_UNKNOWN = {""}  # a field that no section has


def row_life(spec: TableSpec, expiry: Expiry) -> RowLife:
    """The life of a table's rows; whatever is drawn in it depends on the job's seed and the table's name.

    Raises `ConfigError` for a kind of admission that is not known, `KernelError` for numbers that cannot be used.
    """
    admission = spec.admission
    kind = kind_in(admission)
    if not _NEEDED.get(kind, _UNKNOWN) <= set(admission):
        raise ConfigError(
            f"table {spec.name}: admission {admission} is not known",
            field=f"tables.{spec.name}.admission",
            value=str(admission),
            expected="always, probability with p, or count with n",
        )
    return RowLife(
        seed=initializer_seed(spec.seed, spec.name),
        admission=kind,
        probability=number_in(admission, "p", 1.0),
        min_shows=count_in(admission, "n", 1),
        sketch_bytes=count_in(admission, "sketch_mb", SKETCH_BYTES // _MIB) * _MIB,
        expiry=expiry.kind,
        decay=expiry.decay,
        show_weight=expiry.show_weight,
        click_weight=expiry.click_weight,
        min_score=expiry.threshold,
        max_rows=spec.max_rows,
        eviction=spec.eviction,
    )
