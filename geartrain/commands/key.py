"""`geartrain key`: from ids to the keys under which `geartrain stats` shows the hottest rows."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import islice

import click

from geartrain.commands.options import json_option
from geartrain.errors import ConfigError

_AT_ONCE = 1 << 16


@click.command()
@click.argument("table")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@json_option
def key(table: str, ids: tuple[str, ...], as_json: bool) -> None:
    """Print the keys of the IDs of a TABLE, each with its kind and id; without an ID, of the lines of stdin.

    Keys are hashes: to learn which id a hot key is of, look for it among the keys of all ids. An id that is an integer
    has two keys: as a string, which ids in text files are, and as an integer, as in parquet files. A missing value has
    that of ''. Negative ones stand behind a `--`.
    """
    found = keys_of(table, ids or (line.removesuffix("\n") for line in sys.stdin))
    if as_json:
        told = [{"id": one, "kind": kind, "key": key_of} for one, kind, key_of in found]
        click.echo(json.dumps({"table": table, "keys": told}))
        return
    for one, kind, key_of in found:
        click.echo(f"{key_of}  {kind:7}  {one}")


def keys_of(table: str, ids: Iterator[str] | Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Id, kind (string or integer) and key (16 hexadecimal digits) of every id, in their order."""
    import pyarrow as pa

    from geartrain.data.hashing import INTEGER, STRING, keys_of_array

    rest = iter(ids)
    _require_utf8("table", table)
    while some := list(islice(rest, _AT_ONCE)):
        for one in some:
            _require_utf8("id", one)
        keys = {number: [(STRING, int(key))] for number, key in enumerate(keys_of_array(pa.array(some), table))}
        for dtype, low, high in ((pa.int64(), -(2**63), 2**63), (pa.uint64(), 2**63, 2**64)):
            integers = {number: int(one) for number, one in enumerate(some) if _is_integer(one, low, high)}
            for number, key in zip(integers, keys_of_array(pa.array(integers.values(), dtype), table), strict=True):
                keys[number].append((INTEGER, int(key)))
        for number, one in enumerate(some):
            for kind, key in keys[number]:
                yield one, kind, f"{key:016x}"


def _require_utf8(field: str, text: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ConfigError(
                f"{field}: expected UTF-8, got {text!a}", field=field, value=ascii(text), expected="UTF-8"
            ) from None


def _is_integer(text: str, low: int, high: int) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) <= 20 and low <= int(text) < high


COMMANDS = (key,)
