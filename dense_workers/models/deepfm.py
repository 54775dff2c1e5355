"""DeepFM (Guo et al., 2017): Wide & Deep whose shallow part is a factorization machine on the same embeddings.

Rows are [first-order weight | embedding]. The pairs are those of slots; numeric inputs have first-order weights and go
into the tower.
"""

from __future__ import annotations

from dense_workers.models.wide_deep import WideDeep


class DeepFM(WideDeep):
    """Wide & Deep with the products of all pairs of embeddings in its shallow part."""

    pairwise = True
