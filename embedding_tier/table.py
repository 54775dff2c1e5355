"""One table on one server: its rows, its optimizer, when its rows leave."""

from __future__ import annotations

import logging

from embedding_tier.admission import row_life
from embedding_tier.expiry import Expiry
from embedding_tier.optimizer import Optimizer, row_initializer
from geartrain.errors import KernelError, VersionError
from geartrain.wire.messages import Apply, TableSpec
from kernels.row_store import RowStore

_log = logging.getLogger(__name__)

GROWTH_ROWS = 4096
"""Births that are worth preparing for; what fewer of them wait for is not felt."""


class Table:
    """Rows of one table that this server owns."""

    def __init__(self, spec: TableSpec) -> None:
        """Raises `ConfigError` for settings that are not known."""
        self.name = spec.name
        self.optimizer = Optimizer.from_config(spec.optimizer)
        self.expiry = Expiry.of(spec)
        life = row_life(spec, self.expiry)
        self.store = RowStore(spec.dim, self.optimizer.kind, row_initializer(spec), life, spec.row_dtype)
        self._num_born = 0

    def learning_rate(self, decision: Apply) -> float:
        """The one that `decision` has for this table. Raises `VersionError` without one, or for a version that no row
        can have."""
        lr = decision.sparse_lr.get(self.name)
        if lr is None:
            raise VersionError(
                f"decision {decision.version} has no learning rate for table {self.name}", table=self.name
            )
        if not 0 < decision.version < 2**32:
            raise VersionError(f"version {decision.version} is none that a row can have", got=decision.version)
        return lr

    def expire(self, decision: Apply) -> int:
        """Let rows leave whose time has come with this window; how many did. The caller has the table alone."""
        sweep = self.expiry.sweep(decision.version, decision.pass_versions)
        return self.store.expire(*sweep) if sweep is not None else 0

    def born(self, num_rows: int) -> None:
        """So many rows were born in a window."""
        self._num_born += num_rows

    def prepare_growth(self) -> None:
        """Have the memory at hand for twice as many births as there were lately, if those were many.

        For the thread that applies, between windows; the caller need not hold the lock. What the next window would have
        to wait for is asked of the system now, while pulls go on. If the system refuses, nothing is lost yet: a window
        that needs the memory asks again, and fails if it must.
        """
        if self._num_born >= GROWTH_ROWS:
            num_born, self._num_born = self._num_born, 0
            try:
                self.store.prepare_growth(2 * num_born)
            except KernelError as error:
                _log.warning("table %s: no memory to grow ahead: %s", self.name, error)

    def hottest(self) -> list[tuple[int, float]]:
        """The keys with the most shows, and those."""
        keys, shows = self.store.hottest()
        return list(zip(keys.tolist(), shows.tolist(), strict=True))
