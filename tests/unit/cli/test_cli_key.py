"""From ids to the keys that stats show."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from geartrain.cli import command
from geartrain.commands import key as key_command
from geartrain.commands.key import keys_of
from geartrain.data.hashing import keys_of_array, missing_key
from geartrain.errors import ConfigError
from kernels.hashing import keys_of_integers


def lines(*arguments: str, stdin: str = "") -> list[list[str]]:
    done = CliRunner().invoke(command, ["key", *arguments], input=stdin)
    assert (done.exit_code, done.stderr) == (0, "")
    return [line.split(maxsplit=2) for line in done.stdout.splitlines()]


def string_key(one: str, table: str) -> str:
    return f"{keys_of_array(pa.array([one]), table)[0]:016x}"


def integer_key(one: int, table: str) -> str:
    dtype = np.int64 if one < 2**63 else np.uint64
    return f"{keys_of_integers(np.array([one], dtype), table)[0]:016x}"


def test_a_string_has_one_key_and_an_integer_two() -> None:
    assert lines("item", "i7", "42", "--", "-1") == [
        [string_key("i7", "item"), "string", "i7"],
        [string_key("42", "item"), "string", "42"],
        [integer_key(42, "item"), "integer", "42"],
        [string_key("-1", "item"), "string", "-1"],
        [integer_key(-1, "item"), "integer", "-1"],
    ]
    assert lines("user", "i7") != lines("item", "i7"), "each table has keys of its own"


@pytest.mark.parametrize(("arguments", "field"), [(["item", "i7", "\udcff"], "id"), (["\udcff", "1"], "table")])
def test_what_is_not_utf8_is_refused(arguments: list[str], field: str) -> None:
    """As Python hands over bytes of a command line, or of stdin, that are none."""
    with pytest.raises(ConfigError, match=f"{field}: expected UTF-8") as refused:
        list(keys_of(arguments[0], arguments[1:]))
    assert refused.value.facts["field"] == field


def test_ids_come_from_stdin_in_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_command, "_AT_ONCE", 3)
    names = [f"id {number}" for number in range(10)]
    found = lines("item", stdin="\n".join(names) + "\n")
    assert found == [[string_key(name, "item"), "string", name] for name in names]


def test_a_missing_value_is_the_empty_string() -> None:
    (found,) = keys_of("item", [""])
    assert found == ("", "string", f"{missing_key('item'):016x}")


def test_json_has_them_all() -> None:
    done = CliRunner().invoke(command, ["key", "item", "7", "--json"])
    told = [{"id": "7", "kind": "string", "key": string_key("7", "item")}]
    told.append({"id": "7", "kind": "integer", "key": integer_key(7, "item")})
    assert json.loads(done.stdout) == {"table": "item", "keys": told}


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])) | st.integers(-(2**65), 2**65).map(str), max_size=8))
def test_every_id_has_the_keys_that_training_gives_it(ids: list[str]) -> None:
    expected = []
    for one in ids:
        expected.append((one, "string", string_key(one, "t")))
        plain = one.removeprefix("-")
        if plain.isascii() and plain.isdecimal() and -(2**63) <= int(one) < 2**64:
            expected.append((one, "integer", integer_key(int(one), "t")))
    assert list(keys_of("t", ids)) == expected
