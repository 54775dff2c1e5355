"""A card that is emulated: the CPU computes the real step, and the worker then waits as long as the card would need."""

from __future__ import annotations

import random

import torch

from dense_workers.links import Links
from dense_workers.waiting import Clock
from geartrain.device_spec import DeviceSpec, EmulatedCard
from geartrain.errors import DeviceMemoryError
from geartrain.wire.messages import DeviceFacts


class EmulatedPace:
    """A step that takes `seconds` from `begun_s` on: what the host needs is part of that time, not added to it."""

    def __init__(self, begun_s: float, seconds: float, clock: Clock) -> None:
        self._until_s = begun_s + seconds
        self._counts = seconds > 0
        self._clock = clock

    def finish(self) -> bool:
        """Wait until the card would be done. Nothing is made up for later: a step that was late stays late.

        A step without samples takes a card no time, and no host can be slower than that in earnest: it does not count.
        """
        if self._clock.now_s() > self._until_s:
            return self._counts
        self._clock.wait_until(self._until_s)
        return False


class EmulatedDevice:
    """A card by its description. Jitter is drawn from the worker's name, so a run can be had again."""

    def __init__(self, spec: DeviceSpec, card: EmulatedCard, clock: Clock) -> None:
        self.spec = spec
        self.torch_device = torch.device("cpu")
        self.links = Links(card.bandwidth_mb_s, clock)
        self.max_samples = card.max_samples
        self._card = card
        self._clock = clock
        self._random = random.Random("")
        self._training_since_s: float | None = None
        self._peak_samples = 0

    def facts(self) -> DeviceFacts:
        card = self._card
        return DeviceFacts(
            model=card.name,
            vendor=card.vendor,
            emulated=True,
            precisions=list(card.precisions),
            memory_bytes=None if card.memory_mb is None else int(card.memory_mb * 1e6),
        )

    def begin_job(self, worker: str) -> None:
        self._random = random.Random(worker)
        self._training_since_s = None
        self._peak_samples = 0

    def begin_training(self) -> None:
        if self._training_since_s is None:
            self._training_since_s = self._clock.now_s()

    def begin_step(self, num_samples: int, num_tokens: int) -> EmulatedPace:
        self._peak_samples = max(self._peak_samples, num_samples)
        jitter = self._random.uniform(1 - self._card.jitter, 1 + self._card.jitter)
        begun_s = self._clock.now_s()
        return EmulatedPace(
            begun_s, self._card.step_s(num_samples, num_tokens) * jitter / self._speed(begun_s), self._clock
        )

    def check_fits(self, num_samples: int) -> None:
        if self.max_samples is not None and num_samples > self.max_samples:
            raise DeviceMemoryError(
                f"{self.spec.label}: a step of {num_samples} samples does not fit its memory, {self.max_samples} do",
                device=str(self.spec),
                num_samples=num_samples,
                max_samples=self.max_samples,
            )

    def memory_error(self, error: Exception) -> DeviceMemoryError | None:
        """`check_fits` has said so before: memory that is emulated does not run out by itself."""
        return None

    def synchronize(self) -> None:
        pass

    def forget_peak(self) -> None:
        self._peak_samples = 0

    def peak_bytes(self) -> int | None:
        sample_kb = self._card.sample_kb
        return None if sample_kb is None else int(self._peak_samples * sample_kb * 1000)

    def _speed(self, now_s: float) -> float:
        """The share of its speed that the card has at `now_s`."""
        at_s, since_s = self._card.throttle_at_s, self._training_since_s
        throttled = at_s is not None and since_s is not None and now_s - since_s >= at_s
        return self._card.throttle_to if throttled else 1.0
