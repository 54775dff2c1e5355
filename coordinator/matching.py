"""From portraits to sync groups and shares, at the start of a job and while it runs. Pure.

Groups put like with like; batches and shares are cut so that all members of all groups finish together. A portrait that
changes gives new shares from the next grant on, and new groups where these are clearly better.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from coordinator.cost_model import StepTiming
from coordinator.events import GroupSpec, MemberCost
from coordinator.group_lags import GroupLags
from coordinator.grouping import Candidate, Partition, Regrouper, partition
from coordinator.portrait import Portrait
from coordinator.portrait_book import PortraitBook
from coordinator.shares import batch_sizes_by_time, finishing_s, group_batch_sizes
from geartrain.wire.messages import Staged

TRIAL = 50
"""A worker that gets nothing is tried with this part of an equal share."""
RETRY_AFTER = 100
"""Windows until a worker whose steps have shown that it can have nothing is tried again; twice as many each time."""
LOOK_EVERY = 20
"""Windows between two looks at whether other groups were better."""
MAX_LISTED = 8
"""Members of a group that a reason names."""


@dataclass(frozen=True, slots=True)
class MatchSettings:
    """What groups and shares are made for. `group_size` None: by measured speed; `min_share` as for the grants."""

    batch_size: int
    mode: str
    group_size: int | None
    min_share: int = 0
    tokens_per_sample: float = 0.0


@dataclass(frozen=True, slots=True)
class Matching:
    """Groups with their batches and their members' costs, and why they are as they are."""

    groups: tuple[GroupSpec, ...]
    reason: str


def match_equally(workers: Sequence[str], settings: MatchSettings, first_group: int) -> Matching:
    """Equal shares: groups of `group_size` workers in the order of their names (None: one group); the last takes the
    rest."""
    size = len(workers) if settings.group_size is None else min(settings.group_size, len(workers))
    members = [tuple(workers[at : at + size]) for at in range(0, len(workers), size)]
    batches = group_batch_sizes(settings.batch_size, [len(group) for group in members], settings.min_share)
    groups = tuple(
        GroupSpec(first_group + number, group, batch)
        for number, (group, batch) in enumerate(zip(members, batches, strict=True))
    )
    return Matching(groups, f"{len(groups)} group(s) of {len(workers)} worker(s), equal shares")


class Matcher:
    """Groups and shares of a job whose workers have portraits. Group ids are counted from `first_group`."""

    def __init__(self, settings: MatchSettings, book: PortraitBook, first_group: int) -> None:
        self._settings = settings
        self.book = book
        self.next_group = first_group
        self._regrouper = Regrouper()
        self._is_changed = False
        self._look_at = LOOK_EVERY
        self._balance_at = LOOK_EVERY
        self._lags = GroupLags()
        self._groups: tuple[GroupSpec, ...] = ()
        self._gone: set[str] = set()
        self._try_at: dict[str, int] = {}
        self._trials: Counter[str] = Counter()

    def match(self) -> Matching:
        """Groups and shares by the portraits as they are."""
        found = self._partition()
        return self._new_groups(found.groups, found.reason)

    def change(self, settings: MatchSettings) -> None:
        """Match by these settings from now on. The next `regroup` gives the groups that a job begins with by them."""
        self._is_changed = self._is_changed or settings != self._settings
        self._settings = settings

    def adopt(self, members: Sequence[tuple[str, ...]], reason: str) -> Matching:
        """These groups, chosen by the caller, with shares by the portraits."""
        return self._new_groups(members, reason)

    def lost(self, workers: Collection[str], reason: str) -> Matching:
        """The groups without workers that are gone: the others of a group go on under a new id, other groups stay."""
        self._gone.update(workers)
        left: list[tuple[int, tuple[str, ...]]] = []
        for spec in self._groups:
            members = tuple(worker for worker in spec.members if worker not in self._gone)
            if members == spec.members:
                left.append((spec.group, members))
            elif members:
                left.append((self.next_group, members))
                self.next_group += 1
        self._groups = self._with_shares(left)
        return Matching(self._groups, f"{reason}; batches are {_batches(self._groups)}")

    def observe(self, report: Staged, unix_time: float) -> Matching | None:
        """Take a real step into account; other shares for the same groups where the portrait has changed by it."""
        if report.skipped or report.num_samples == 0:
            return None
        timing = StepTiming(report.num_samples, report.num_tokens, report.busy_ms / 1000)
        change = self.book.observe(report.node, timing, unix_time)
        return self.reshare(change.reason) if change is not None else None

    def step_took(self, group: int, seconds: float, own_s: Sequence[float]) -> None:
        """A step of the group took so long, from its grant to its arrival, and each member so long for its own part."""
        self._lags.add(group, seconds, own_s)

    def rebalance(self, version: int, unix_time: float) -> Matching | None:
        """Other batches for the same groups, where they do not arrive together, and a trial for workers that get
        nothing; to be asked after every window."""
        if version < self._balance_at:
            return None
        self._balance_at = version + LOOK_EVERY
        reasons = [self._lags.look([spec.group for spec in self._groups]), *self._try_idle(version, unix_time)]
        said = "; ".join(reason for reason in reasons if reason)
        return self.reshare(said) if said else None

    def _try_idle(self, version: int, unix_time: float) -> list[str]:
        """Doubt the portraits of workers that get nothing: no step could ever correct them. Why, for each."""
        settings, costs = self._settings, self.book.costs()
        workers = [worker for spec in self._groups for worker in spec.members]
        members = [[costs[worker]] for worker in workers]
        tokens, least = settings.tokens_per_sample, max(1, settings.min_share)
        sizes = batch_sizes_by_time(settings.batch_size, members, tokens, settings.min_share)
        trial = max(least, settings.batch_size // (TRIAL * len(workers)))
        together_s = finishing_s(settings.batch_size, [costs[worker] for worker in workers], tokens)
        reasons = []
        for worker, size in zip(workers, sizes, strict=True):
            holds = costs[worker].max_samples
            if size > 0 or (holds is not None and holds < trial):
                self._try_at.pop(worker, None)
                continue
            # What steps have found is doubted more rarely than what was never tried.
            patience = RETRY_AFTER * 2 ** self._trials[worker] if self.portraits[worker].source == "steps" else 0
            if version < self._try_at.setdefault(worker, version + patience):
                continue
            del self._try_at[worker]
            self._trials[worker] += 1
            predicted_s = costs[worker].cost.seconds(trial, trial * tokens)
            # (A little less than the time of the others: with it, they finish a little earlier.)
            factor = 0.9 * together_s / predicted_s
            said = f"gets nothing by its portrait and is tried with about {trial} samples a step"
            reasons.append(self.book.doubt(worker, factor, said, unix_time).reason)
        return reasons

    def reshare(self, reason: str) -> Matching | None:
        """Shares of the groups that are, by the portraits as they are now; None when nothing changes."""
        groups = self._with_shares([(spec.group, spec.members) for spec in self._groups])
        if groups == self._groups:
            return None
        self._groups = groups
        return Matching(groups, f"{reason}; batches are {_batches(groups)}")

    def regroup(self, version: int) -> Matching | None:
        """Other groups, with new ids, if they are clearly better now; to be asked after every window.

        It looks every `LOOK_EVERY` versions, however often it is asked.
        """
        settings = self._settings
        if self._is_changed:
            return self._match_again(version)
        if settings.group_size is not None or settings.mode == "sync" or version < self._look_at:
            return None
        self._look_at = version + LOOK_EVERY
        current = tuple(spec.members for spec in self._groups)
        found = self._regrouper.consider(current, self._candidates(), version)
        return self._new_groups(found.groups, found.reason) if found is not None else None

    def _match_again(self, version: int) -> Matching | None:
        """The groups that changed settings ask for, where they are not those that live."""
        self._is_changed = False
        self._look_at = version + LOOK_EVERY
        found = self._partition()
        if set(found.groups) == {spec.members for spec in self._groups}:
            return None
        self._regrouper = Regrouper(version)
        return self._new_groups(found.groups, f"sync.mode is now {self._settings.mode}: {found.reason}")

    @property
    def portraits(self) -> Mapping[str, Portrait]:
        """The portraits in force, by worker."""
        return self.book.portraits()

    def _partition(self) -> Partition:
        """The best groups by the settings and the portraits as they are."""
        candidates = self._candidates()
        wanted = self._settings.group_size
        if self._settings.mode == "sync" and wanted is None:
            # All wait for all: more groups than vendors gain nothing.
            wanted = len(candidates)
        return partition(candidates, wanted)

    def _new_groups(self, members: Sequence[tuple[str, ...]], reason: str) -> Matching:
        first = self.next_group
        self.next_group += len(members)
        self._groups = self._with_shares([(first + number, group) for number, group in enumerate(members)])
        return Matching(self._groups, f"{reason}; batches are {_batches(self._groups)}")

    def _with_shares(self, groups: Sequence[tuple[int, tuple[str, ...]]]) -> tuple[GroupSpec, ...]:
        settings = self._settings
        costs = self.book.costs()
        members = [tuple(costs[worker] for worker in names) for _, names in groups]
        in_groups = [
            [_later(cost, self._lags.lag_s(number)) for cost in group]
            for (number, _), group in zip(groups, members, strict=True)
        ]
        # Also where batches will be equal: it says when memory cannot hold them.
        batches = batch_sizes_by_time(settings.batch_size, in_groups, settings.tokens_per_sample, settings.min_share)
        if 0 in batches and in_groups != [list(group) for group in members]:
            # A group without a batch takes no steps, and could never tell that its lag is over.
            self._lags.forget()
            return self._with_shares(groups)
        if _alike([cost for group in in_groups for cost in group]):
            batches = group_batch_sizes(settings.batch_size, [len(group) for group in members], settings.min_share)
        specs = [
            GroupSpec(number, names, batch, group)
            for (number, names), batch, group in zip(groups, batches, members, strict=True)
        ]
        if settings.tokens_per_sample == 0:
            # Where cards are alike and samples too, shares are equal: the numbers are those of the classic way.
            specs = [replace(spec, costs=()) if _alike(spec.costs) else spec for spec in specs]
        return tuple(specs)

    def _candidates(self) -> list[Candidate]:
        settings = self._settings
        costs = self.book.costs()
        present = {worker: one for worker, one in self.book.portraits().items() if worker not in self._gone}
        typical = max(1, settings.batch_size // len(present))
        return [
            Candidate(
                worker,
                portrait.model,
                portrait.vendor,
                costs[worker].cost.samples_per_s(typical, settings.tokens_per_sample),
            )
            for worker, portrait in present.items()
        ]


def _later(cost: MemberCost, lag_s: float) -> MemberCost:
    """The cost of a member whose group needs `lag_s` seconds of every step for itself."""
    if lag_s == 0.0:
        return cost
    return replace(cost, cost=replace(cost.cost, fixed_s=cost.cost.fixed_s + lag_s))


def _alike(costs: Sequence[MemberCost]) -> bool:
    return len(set(costs)) <= 1


def _batches(groups: Sequence[GroupSpec]) -> str:
    return ", ".join(f"{spec.batch_size} for {_listed(spec.members)}" for spec in groups)


def _listed(members: Sequence[str]) -> str:
    if len(members) <= MAX_LISTED:
        return "+".join(members)
    return f"{'+'.join(members[:MAX_LISTED])}+{len(members) - MAX_LISTED} others"
