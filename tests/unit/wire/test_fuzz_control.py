"""Whatever a coordinator says to an embedding server: an answer or none, errors in it have names, and it serves on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fuzz_messages import INTEGERS, NAMED, TEXTS, anything, message, quick
from fuzz_server import (
    ROUTE,
    TABLES,
    TERM,
    dense_values,
    good_pull,
    opening,
    serving,
    stage,
)
from hypothesis import given
from hypothesis import strategies as st

from geartrain.wire.framing import decode_from_node, encode
from geartrain.wire.messages import (
    Applied,
    Apply,
    CloseJob,
    Contribution,
    Done,
    FromNode,
    JobOpened,
    NodeFailed,
    OpenJob,
    PlaceDense,
    Route,
    TableSpec,
    TakeSnapshot,
    ToNode,
)

HIGHEST_TERM = TERM + 2
NUMBERS = st.sampled_from([0.0, 0.5, 1.0, 1e-46, 1e39, -1.0]) | st.floats()
TERMS = st.just(TERM) | st.integers(TERM - 1, HIGHEST_TERM)
PATHS = st.sampled_from(["", "there", "there/deeper", "missing", "a file", "a file/below", "\x00", "x" * 5000, "..."])
ROUTES = st.just(ROUTE) | message(Route)


def section(kinds: str, fields: str) -> st.SearchStrategy[dict[str, Any]]:
    """The plain fields of a config's section: a kind, some of the fields that kinds have, values of any type."""
    values = NUMBERS | st.integers(0, 9) | anything(Any)
    return st.fixed_dictionaries(
        {"type": st.sampled_from(kinds.split()) | anything(Any)}, optional=dict.fromkeys(fields.split(), values)
    )


OPTIMIZERS = section(
    "sgd adagrad adam rowwise_adagrad rowwise_adam ftrl", "lr l1 l2 eps beta beta1 beta2 weight_bounds"
)
ODD_SETTINGS = {
    "dim": st.integers(1, 4) | INTEGERS,
    "name": TEXTS,
    "optimizer": OPTIMIZERS,
    "initializer": section("zero uniform normal", "range std"),
    "admission": section("always probability count", "p n sketch_mb"),
    "expiry": section("never unseen score", "versions passes threshold decay show_weight click_weight every_versions"),
    "row_dtype": st.sampled_from(["fp32", "fp16", "bf16"]) | TEXTS,
    "max_rows": st.none() | INTEGERS,
    "eviction": st.sampled_from(["lru", "lfu"]) | TEXTS,
}


@st.composite
def specs(draw: st.DrawFn) -> TableSpec:
    """A table of which one or two settings are odd."""
    chosen = draw(st.lists(st.sampled_from(sorted(ODD_SETTINGS)), min_size=1, max_size=2))
    return msgspec.structs.replace(draw(st.sampled_from(TABLES)), **{name: draw(ODD_SETTINGS[name]) for name in chosen})


CONFIGS = st.just({}) | st.fixed_dictionaries(
    {}, optional={"sync": anything(Any) | st.fixed_dictionaries({"pipeline_depth": anything(Any)})}
)
MESSAGES = st.one_of(
    message(
        OpenJob,
        term=TERMS,
        config=CONFIGS,
        tables=st.just(TABLES) | st.lists(specs(), min_size=1, max_size=2),
        route=ROUTES,
        restore=PATHS,
    ),
    message(
        PlaceDense,
        term=TERMS,
        optimizer=OPTIMIZERS,
        bounds=st.lists(st.integers(-1, 6) | INTEGERS, max_size=3),
    ),
    message(Apply, term=TERMS, version=st.integers(0, 3) | INTEGERS),
    message(Apply, term=TERMS, version=st.just(1), contributions=st.just([])),
    message(TakeSnapshot, term=TERMS, version=st.just(0) | INTEGERS, directory=PATHS),
    message(CloseJob, term=TERMS),
    st.builds(opening, TERMS, st.just("another job"), tables=st.lists(specs(), min_size=1, max_size=2)),
    *(message(kind) for kind in ToNode.__args__ if kind not in (OpenJob, PlaceDense, Apply, TakeSnapshot, CloseJob)),
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which the paths of the messages lie."""
    (tmp_path / "there").mkdir()
    (tmp_path / "a file").touch()
    monkeypatch.chdir(tmp_path)
    yield tmp_path


@quick
@given(told=st.lists(MESSAGES, min_size=1, max_size=5))
def test_messages_with_any_values_are_answered_or_ignored(place: Path, told: list[ToNode]) -> None:
    late: list[FromNode] = []
    control, tier = serving(tell=late.append)
    answers = [control.handle(message_) for message_ in told]
    if (stats := tier.stats(0)) is not None:
        encode(stats)
    assert isinstance(control.handle(opening(HIGHEST_TERM, "a good job")), JobOpened)
    good_pull(tier, HIGHEST_TERM)
    for answer in [*answers, *late]:
        if answer is not None:
            decode_from_node([encode(answer)])
        if isinstance(answer, NodeFailed):
            assert answer.error["code"] in NAMED, answer.error


LAST_VERSIONS = st.just(0) | st.sampled_from([2**32 - 2, 2**32 - 1, 2**64 - 2])
STAGED = Contribution(0, 0, ["w0"], 4, 1.0)
STEPS = st.builds(
    Contribution, st.just(0), st.integers(0, 1), st.lists(st.sampled_from(["w0", "w1"])), st.just(4), NUMBERS
)
ODD_FIELDS = {
    "contributions": st.lists(st.just(STAGED) | STEPS, max_size=2),
    "divisor": NUMBERS,
    "step_scale": NUMBERS,
    "most_windows": NUMBERS,
    "dense_lr": NUMBERS,
    "sparse_lr": st.sampled_from([{}, {"a": 0.1}, {"b": 0.1}]) | st.fixed_dictionaries({"a": NUMBERS, "b": NUMBERS}),
    "live_groups": st.lists(INTEGERS),
    "pass_versions": st.lists(INTEGERS),
}
ODD = st.one_of([st.fixed_dictionaries({name: values}) for name, values in ODD_FIELDS.items()])


@quick
@given(LAST_VERSIONS, ODD)
def test_a_decision_with_any_numbers_is_applied_as_a_whole_or_not_at_all(version: int, odd: dict[str, Any]) -> None:
    control, tier = serving(version)
    before = good_pull(tier), dense_values(tier)
    assert isinstance(stage(tier, "w0").header(), Done)
    decision = Apply(TERM, version + 1, [STAGED], 4.0, 1.0, 1.0, 0.1, {"a": 0.1, "b": 0.1}, [0])
    answer = control.handle(msgspec.structs.replace(decision, **odd))
    if isinstance(answer, Applied):
        assert answer.version == version + 1
    else:
        assert isinstance(answer, NodeFailed) and answer.error["code"] in NAMED, answer
        assert (good_pull(tier), dense_values(tier)) == before
