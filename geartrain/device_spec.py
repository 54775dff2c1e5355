"""What `--device` names: the CPU, a CUDA card, or a card that is emulated. Nothing here looks at the hardware."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from typing import Any, NoReturn

from geartrain.device_label import device_label
from geartrain.errors import ConfigError

EXPECTED = "cpu, cuda:N or emulate:samples_per_s=N,..."
PRECISIONS = ("fp32", "bf16", "fp16")
LEAST_SPEED, MOST_SPEED = 1e-3, 1e12
"""Samples per second that a person may say a device has."""

_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d{1,3})?|\.\d+([eE][+-]?\d{1,3})?", re.ASCII)
_WORD = re.compile(r"\w[\w .+/-]{0,39}", re.ASCII)


@dataclass(frozen=True, slots=True)
class EmulatedCard:
    """A card that is stood for by waiting, as a person described it.

    A step takes `num_samples / samples_per_s + num_tokens / tokens_per_s` seconds (tokens: the values in sequence
    slots), times a factor drawn from 1 - `jitter` to 1 + `jitter`; from `throttle_at_s` seconds of training on, it has
    `throttle_to` of its speed. Bytes pass at `bandwidth_mb_s` megabytes per second in each direction; each sample of a
    step takes `sample_kb` of its `memory_mb`. None: without such a limit. `name` is the model: cards of one name are
    alike.
    """

    name: str
    samples_per_s: float
    tokens_per_s: float | None = None
    bandwidth_mb_s: float | None = None
    jitter: float = 0.0
    throttle_at_s: float | None = None
    throttle_to: float = 1.0
    memory_mb: float | None = None
    sample_kb: float | None = None
    precisions: tuple[str, ...] = ("fp32",)
    vendor: str = "emulated"

    def step_s(self, num_samples: int, num_tokens: int) -> float:
        """Seconds of a step before jitter and throttling."""
        tokens_s = 0.0 if self.tokens_per_s is None else num_tokens / self.tokens_per_s
        return num_samples / self.samples_per_s + tokens_s

    @property
    def max_samples(self) -> int | None:
        """The largest step that its memory holds; None without a limit."""
        if self.memory_mb is None or self.sample_kb is None:
            return None
        return int(self.memory_mb * 1000 / self.sample_kb)

    def __str__(self) -> str:
        """Its settings as `emulate:` takes them; those that are as by default are left out."""
        return ",".join(
            f"{one.name}={_written(getattr(self, one.name))}"
            for one in fields(self)
            if getattr(self, one.name) != one.default
        )


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """A device as the command line names it. `index` is 0 but for CUDA; `card` is there for `emulate` only."""

    kind: str
    index: int = 0
    card: EmulatedCard | None = None

    @property
    def label(self) -> str:
        """Its short name for reports: `cpu`, `cuda:0`, `emulate:V100`."""
        return device_label(str(self))

    def __str__(self) -> str:
        """The one way to write it: equal devices are written alike."""
        if self.card is not None:
            return f"emulate:{self.card}"
        return "cpu" if self.kind == "cpu" else f"{self.kind}:{self.index}"


def parse_device(spec: str, field: str = "--device") -> DeviceSpec:
    """The device that `spec` names; `field` is where it was written.

    Raises `ConfigError` (facts: field, value, expected, and the setting of a card).
    """
    if spec == "cpu":
        return DeviceSpec("cpu")
    if match := re.fullmatch(r"cuda:(\d{1,4})", spec, re.ASCII):
        return DeviceSpec("cuda", int(match[1]))
    kind, _, settings = spec.partition(":")
    if kind == "emulate":
        return DeviceSpec("emulate", card=_Settings(spec, settings, field).card())
    message = f"{field} {spec}: no such kind of device; expected {EXPECTED}"
    raise ConfigError(message, field=field, value=spec, expected=EXPECTED)


class _Settings:
    """The `name=value` pairs behind `emulate:`, taken one by one."""

    def __init__(self, spec: str, settings: str, field: str) -> None:
        self._spec = spec
        self._field = field
        self._values: dict[str, str] = {}
        known = [one.name for one in fields(EmulatedCard)]
        for part in settings.split(",") if settings else []:
            name, equals, value = part.partition("=")
            if name not in known:
                self._refuse(name, part, f"one of {', '.join(known)}")
            if not equals or not value:
                self._refuse(name, part, f"{name}=VALUE")
            if name in self._values:
                self._refuse(name, value, "one value, not two")
            self._values[name] = value

    def card(self) -> EmulatedCard:
        speed = self._number("samples_per_s", LEAST_SPEED, MOST_SPEED)
        if speed is None:
            self._refuse("samples_per_s", None, "a number: how fast the card is")
        throttle_at_s = self._number("throttle_at_s", 0.0, 1e9)
        throttle_to = self._number("throttle_to", 1e-6, 1.0)
        self._need_both("throttle_at_s", "throttle_to")
        memory_mb = self._number("memory_mb", 1e-3, 1e12)
        sample_kb = self._number("sample_kb", 1e-6, 1e12)
        self._need_both("memory_mb", "sample_kb")
        card = EmulatedCard(
            name=self._word("name") or _written(speed),
            samples_per_s=speed,
            tokens_per_s=self._number("tokens_per_s", 1e-3, 1e12),
            bandwidth_mb_s=self._number("bandwidth_mb_s", 1e-6, 1e9),
            jitter=self._number("jitter", 0.0, 0.99) or 0.0,
            throttle_at_s=throttle_at_s,
            throttle_to=1.0 if throttle_to is None else throttle_to,
            memory_mb=memory_mb,
            sample_kb=sample_kb,
            precisions=self._precisions(),
            vendor=self._word("vendor") or "emulated",
        )
        if card.max_samples == 0:
            self._refuse("memory_mb", self._values["memory_mb"], "room for one sample of sample_kb at least")
        return card

    def _number(self, name: str, low: float, high: float) -> float | None:
        text = self._values.get(name)
        if text is None:
            return None
        value = float(text) if _NUMBER.fullmatch(text) else math.nan
        if not low <= value <= high:
            self._refuse(name, text, f"a number from {low:g} to {high:g}")
        return value

    def _word(self, name: str) -> str | None:
        text = self._values.get(name)
        if text is not None and not _WORD.fullmatch(text):
            self._refuse(name, text, "up to 40 letters, digits, blanks and any of _ . + / -")
        return text

    def _precisions(self) -> tuple[str, ...]:
        text = self._values.get("precisions", "fp32")
        named = text.split("+")
        if "fp32" not in named or not set(named) <= set(PRECISIONS) or len(set(named)) < len(named):
            self._refuse("precisions", text, "fp32, alone or with others of its kind: fp32+bf16+fp16")
        return tuple(precision for precision in PRECISIONS if precision in named)

    def _need_both(self, first: str, second: str) -> None:
        for given, missing in ((first, second), (second, first)):
            if given in self._values and missing not in self._values:
                self._refuse(missing, None, f"a number beside {given}")

    def _refuse(self, setting: str, value: str | None, expected: str) -> NoReturn:
        got = "nothing" if value is None else repr(value)
        facts: dict[str, Any] = {"setting": setting, "value": value, "expected": expected, "device": self._spec}
        message = f"{self._field} {self._spec}: {setting or 'setting'}: expected {expected}, got {got}"
        raise ConfigError(message, field=self._field, **facts)


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(value)
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
