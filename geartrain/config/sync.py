"""How gradients of several workers and groups become one version."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from geartrain.config.section import Expect, Section, expected, within_int64

Auto = Literal["auto"]
_INT64 = AfterValidator(within_int64)
AutoSize = Annotated[Annotated[int, Field(ge=1)] | Auto, Expect("'auto' or an integer >= 1"), _INT64]
AutoCount = Annotated[Annotated[int, Field(ge=0)] | Auto, Expect("'auto' or an integer >= 0"), _INT64]
AutoNumber = Annotated[Annotated[float, Field(ge=0)] | Auto, Expect("'auto' or a number >= 0")]


class SyncConfig(Section):
    """Groups and the aggregation window."""

    mode: Literal["sync", "async", "hybrid"] = "hybrid"
    """sync: a window waits for all groups. async: it waits for none. hybrid: it waits `window_ms` from the first."""
    group_size: AutoSize = "auto"
    """Workers in a group, in the order of their speed, never of two vendors; the last group takes the rest.
    auto: by measured speed, so that like is with like and each group is worth the staleness that it brings; with mode
    sync, one group per vendor; with mode async, groups of one; with heterogeneous: false, one group of all workers,
    and a size by hand counts in the order of their names."""
    window_ms: AutoNumber = "auto"
    """Milliseconds that a hybrid window waits after its first arrival; in the other modes no window waits for time."""
    staleness_decay: Annotated[float, Field(gt=0, le=1), Expect("a number > 0 and <= 1")] = 0.9
    """Weight of a contribution is staleness_decay ** (staleness beyond pipeline_depth and beyond what is usual)."""
    max_staleness: AutoCount = "auto"
    """Groups that are ahead wait rather than let a gradient be older than this; auto: 2 * groups + pipeline_depth."""
    step_scale: bool = True
    """Whether the optimizer's update is multiplied by the part of the round's samples that a window holds. false: a
    window with few samples moves the model as far as one with all; it is there to be compared with."""
    pipeline_depth: Annotated[int, Field(ge=0, le=1), Expect("0 or 1")] = 0
    """1: rows of the next step are pulled while this one computes."""

    @model_validator(mode="after")
    def _check_bound(self) -> SyncConfig:
        if self.max_staleness != "auto" and self.max_staleness < self.pipeline_depth:
            raise expected(f"'auto' or an integer >= pipeline_depth ({self.pipeline_depth})", "max_staleness")
        return self
