"""What the fuzz tests are made of: messages with any values that their types allow, and damage to valid ones."""

from __future__ import annotations

import types
from collections.abc import Mapping
from functools import cache
from typing import Any, Union, get_args, get_origin

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from geartrain.errors import GeartrainError

Strategy = st.SearchStrategy[Any]

NAMED = {kind.code for kind in GeartrainError.__subclasses__()}
"""The codes that an answer to a bad message may have; `internal` is what nobody thought of."""

quick = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])

INTEGERS = (
    st.integers(-2, 8)
    | st.sampled_from([2**31, 2**32, 2**62, 2**63, 2**64 - 1, -(2**63)])
    | st.integers(-(2**63), 2**64 - 1)
)
TEXTS = st.sampled_from(["", "w0", "a", "..", "\x00", "\ud7ff\uffff", "x" * 300]) | st.text(max_size=8)
PLAIN = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats() | TEXTS | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
_LEAVES: dict[Any, Strategy] = {
    int: INTEGERS,
    float: st.floats() | st.sampled_from([0.0, -1.0, 1e308]),
    str: TEXTS,
    bytes: st.binary(max_size=16),
    bool: st.booleans(),
    type(None): st.none(),
    Any: PLAIN,
}


@cache
def anything(kind: Any) -> Strategy:
    """Any value of a field's type; lists and dicts are short."""
    if kind in _LEAVES:
        return _LEAVES[kind]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return message(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(anything, arguments))
    if origin is dict:
        return st.dictionaries(anything(arguments[0]), anything(arguments[1]), max_size=3)
    if origin is tuple and arguments[-1] is not ...:
        return st.tuples(*map(anything, arguments))
    if origin in (list, tuple):
        return st.lists(anything(arguments[0]), max_size=4).map(origin)
    raise AssertionError(f"no values known for fields of type {kind}")


def message(kind: type[msgspec.Struct], **fields: Any) -> Strategy:
    """A message of this class. `fields` are values or strategies for some of its fields, the others are anything."""
    chosen = {
        field.name: _strategy(fields[field.name]) if field.name in fields else anything(field.type)
        for field in msgspec.structs.fields(kind)
    }
    assert set(fields) <= set(chosen), kind
    return st.builds(kind, **chosen)


def _strategy(value: Any) -> Strategy:
    return value if isinstance(value, st.SearchStrategy) else st.just(value)


@st.composite
def retyped(draw: st.DrawFn, messages: Strategy) -> bytes:
    """A valid message with one of its values, at any depth, replaced, removed or doubled, as msgpack."""
    whole = [msgspec.to_builtins(draw(messages), builtin_types=(bytes,))]
    places = list(_places(whole))
    container, key = places[draw(st.integers(0, len(places) - 1))]
    change = draw(st.sampled_from(["replace", "remove", "double"]))
    if change == "replace" or container is whole:
        container[key] = draw(PLAIN)
    elif change == "remove":
        del container[key]
    elif isinstance(container, list):
        container.append(container[key])
    else:
        container[draw(TEXTS)] = container[key]
    return msgspec.msgpack.encode(whole[0])


def _places(container: Any) -> Any:
    for key in list(container) if isinstance(container, dict) else range(len(container)):
        yield container, key
        if isinstance(container[key], dict | list):
            yield from _places(container[key])


@st.composite
def damaged(draw: st.DrawFn, contents: st.SearchStrategy[bytes], num_damages: int = 3) -> bytes:
    """Bytes with a few places changed, cut out, put in, doubled, or cut off."""
    data = bytearray(draw(contents))
    for _ in range(draw(st.integers(1, num_damages))):
        place = draw(st.integers(0, max(0, len(data) - 1)))
        length = draw(st.integers(1, 8))
        change = draw(st.sampled_from(["set", "flip", "cut", "insert", "double", "end"]))
        if change == "set":
            data[place : place + 1] = bytes([draw(st.integers(0, 255))])
        elif change == "flip" and data:
            data[place] ^= 1 << draw(st.integers(0, 7))
        elif change == "cut":
            del data[place : place + length]
        elif change == "insert":
            data[place:place] = draw(st.binary(min_size=1, max_size=8))
        elif change == "double":
            data[place:place] = data[place : place + length]
        elif change == "end":
            del data[place:]
    return bytes(data)


def one_of(messages: Mapping[type[msgspec.Struct], Strategy] | tuple[type[msgspec.Struct], ...]) -> Strategy:
    """Any message of one of these classes."""
    return st.one_of([message(kind) for kind in messages])
