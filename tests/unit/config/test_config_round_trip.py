"""Any config that is accepted survives its plain form: the wire, a checkpoint, the API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geartrain.config import JobConfig
from geartrain.errors import ConfigError

rates = st.floats(min_value=1e-6, max_value=10, allow_nan=False)
shares = st.one_of(st.just(0.0), st.floats(min_value=1e-6, max_value=0.99))
counts = st.integers(min_value=1, max_value=10_000)
tables = st.sampled_from(["t0", "t1", "täble"])


def _some(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(required, optional=optional)


_SHARED: list[tuple[str, dict[str, Any]]] = [
    ("sgd", {"l2": shares}),
    ("adagrad", {"eps": rates}),
    ("adam", {"beta1": shares, "beta2": shares, "eps": rates, "l2": shares}),
]
_OF_TABLES: list[tuple[str, dict[str, Any]]] = [
    ("rowwise_adagrad", {"eps": rates}),
    ("rowwise_adam", {"beta1": shares, "beta2": shares}),
    ("ftrl", {"l1": shares, "l2": shares, "beta": rates}),
]
optimizers = st.one_of(*(_some({"type": st.just(kind), "lr": rates}, more) for kind, more in _SHARED))
bounds = st.tuples(st.floats(-10, -1), st.floats(1, 10)).map(list)
sparse_optimizers = st.one_of(
    *(
        _some({"type": st.just(kind), "lr": rates}, {**more, "weight_bounds": bounds})
        for kind, more in [*_SHARED, *_OF_TABLES]
    )
)
admissions = st.one_of(
    st.just({"type": "always"}),
    _some({"type": st.just("probability"), "p": st.floats(1e-6, 1)}, {}),
    _some({"type": st.just("count"), "n": st.integers(1, 255)}, {"sketch_mb": st.sampled_from([16, 32, 256])}),
)
expiries = st.one_of(
    st.just({"type": "never"}),
    _some({"type": st.just("unseen"), "versions": counts}, {}),
    _some({"type": st.just("unseen"), "passes": st.integers(1, 1000)}, {}),
    _some({"type": st.just("score")}, {"threshold": rates, "decay": st.floats(1e-6, 1), "every_versions": counts}),
)
kinds = st.one_of(
    _some({"kind": st.just("categorical")}, {"table": tables}),
    _some({"kind": st.just("sequence")}, {"table": tables, "max_length": counts, "pooling": st.just("sum")}),
    _some({"kind": st.just("numeric")}, {"transform": st.sampled_from(["none", "log1p", "standard"])}),
    _some(
        {
            "kind": st.just("numeric"),
            "transform": st.just("bucketize"),
            "boundaries": st.lists(rates, min_size=1, unique=True).map(sorted),
        },
        {},
    ),
)
schedules = st.one_of(
    _some({"type": st.just("constant")}, {}),
    _some({"type": st.just("plateau")}, {"patience": counts, "min_factor": shares}),
    _some({"type": st.just("cosine")}, {"total_samples": counts, "min_factor": shares}),
    _some({"type": st.just("warmup"), "warmup_samples": counts}, {"start_factor": shares}),
)
precisions = st.sampled_from(["auto", "fp32", "bf16", "fp16"])
reading = st.one_of(
    _some({"format": st.just("csv")}, {"separator": st.sampled_from(";|"), "missing": st.lists(st.text(max_size=3))}),
    _some({"format": st.just("tsv")}, {"header": st.just(True), "strip_whitespace": st.booleans()}),
    _some({"format": st.just("parquet")}, {"shuffle": st.booleans()}),
)


@st.composite
def accepted_fields(draw: st.DrawFn) -> dict[str, Any]:
    features = [{"name": f"f{i}", **kind} for i, kind in enumerate(draw(st.lists(kinds, min_size=1, max_size=6)))]
    features.append({"name": "always", "kind": "categorical"})
    label: Any = draw(
        st.one_of(st.just("y"), st.builds(dict, column=st.just("y"), positive=st.lists(st.text(), min_size=1)))
    )
    data = {
        **draw(reading),
        "train": ["a*.csv"],
        "valid": ["b.csv"],
        "group_by": draw(st.sampled_from([None, "always"])),
    }
    tower = {"embedding_dim": counts, "hidden": st.lists(counts, min_size=1), "dropout": shares}
    model = draw(
        st.one_of(st.just({"type": "lr"}), _some({"type": st.sampled_from(["wide_deep", "deepfm", "dcn"])}, tower))
    )
    training = draw(
        _some(
            {},
            {
                "precision": precisions,
                "lr_schedule": schedules,
                "sparse_optimizer": sparse_optimizers,
                "dense_optimizer": optimizers,
            },
        )
    )
    limits = {"max_rows": counts, "row_dtype": st.sampled_from(["fp32", "fp16", "bf16"])}
    life = {"admission": admissions, "expiry": expiries, **limits}
    initializer = st.just({"type": "normal", "std": 0.5})
    own = draw(_some({}, {"optimizer": sparse_optimizers, "initializer": initializer, **life}))
    if "max_rows" in own and draw(st.booleans()):
        own["eviction"] = draw(st.sampled_from(["lru", "lfu"]))
    sync = draw(
        _some(
            {},
            {
                "group_size": st.one_of(st.just("auto"), counts),
                "window_ms": st.one_of(st.just("auto"), counts, rates),
                "step_scale": st.booleans(),
            },
        )
    )
    speeds = st.dictionaries(st.sampled_from(["w0", "w1"]), _some({"samples_per_s": rates}, {}))
    portrait = draw(_some({}, {"num_probes": st.integers(20, 99), "update_every_steps": counts, "initial": speeds}))
    return {
        "features": features,
        "label": label,
        "data": data,
        "model": model,
        "training": training,
        "tables": {"always": own},
        "sync": sync,
        "portrait": portrait,
    }


@given(accepted_fields())
def test_plain_form_gives_back_an_equal_config(fields: dict[str, Any]) -> None:
    config = JobConfig.from_resolved(fields)
    plain = json.loads(json.dumps(config.to_dict(), allow_nan=False))
    again = JobConfig.from_resolved(plain)
    assert again == config
    assert again.to_dict() == config.to_dict()
    assert again.table_specs() == config.table_specs()


@given(accepted_fields(), st.data())
def test_unknown_fields_are_refused_wherever_they_stand(fields: dict[str, Any], data: st.DataObject) -> None:
    section = data.draw(st.sampled_from(["data", "model", "training", "sync", "portrait", "features"]))
    place = fields[section][0] if section == "features" else fields[section]
    place["surprise"] = 1
    path = f"{section}.0" if section == "features" else section
    with pytest.raises(ConfigError) as caught:
        JobConfig.from_resolved(fields)
    assert caught.value.facts["field"] == f"{path}.surprise"


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5))
nonsense = st.recursive(
    scalars, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner))
)


@given(accepted_fields(), st.data())
def test_nonsense_is_refused_with_facts_or_accepted_but_never_crashes(
    fields: dict[str, Any], data: st.DataObject
) -> None:
    section = data.draw(st.sampled_from(sorted(fields)))
    target = fields[section]
    if isinstance(target, dict) and target and data.draw(st.booleans()):
        target[data.draw(st.sampled_from(sorted(target)))] = data.draw(nonsense)
    else:
        fields[section] = data.draw(nonsense)
    try:
        config = JobConfig.from_resolved(fields)
    except ConfigError as error:
        assert error.facts["field"].split(".")[0] in fields
        json.dumps(error.to_dict(), allow_nan=False)
    else:
        assert JobConfig.from_resolved(config.to_dict()) == config
