"""Which nodes belong to the cluster: names, incarnations and leases.

A node is a process; its incarnation is a number that is higher for a process that started later in its place. A node
that was silent for longer than its lease is dead to the cluster, whatever it says later: only a higher incarnation may
take its name.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass, replace
from typing import TypeAlias

from coordinator.natural_order import natural_key
from geartrain.errors import (
    AuthError,
    ConflictError,
    GeartrainError,
    NotFoundError,
    StaleMessageError,
    WireError,
)
from geartrain.wire.messages import Heartbeat, Register

PREFIXES = {"server": "s", "worker": "w"}
NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
"""Names of nodes become part of file names in checkpoints."""


@dataclass(frozen=True, slots=True)
class Node:
    """A server or worker process. `state`: joined | lost; `reason` says why it is in it."""

    name: str
    role: str
    host: str
    device: str
    address: str
    incarnation: int
    last_seen_s: float
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class Joined:
    """The node is in the cluster (`again`: it was already, its registration was repeated)."""

    node: Node
    again: bool
    reason: str


@dataclass(frozen=True, slots=True)
class NodeRefused:
    """The event is refused; the sender is told the error."""

    error: GeartrainError


@dataclass(frozen=True, slots=True)
class Lost:
    """The node of this incarnation is dead to the cluster."""

    node: Node
    reason: str


MemberEvent: TypeAlias = Register | Heartbeat
MemberCommand: TypeAlias = Joined | NodeRefused | Lost


class Membership:
    """All nodes that ever joined, by name."""

    def __init__(self, token: str, lease_s: float) -> None:
        self._token = token
        self._lease_s = lease_s
        self._nodes: dict[str, Node] = {}
        self._ticked_s: float | None = None

    def handle(self, event: MemberEvent, now_s: float) -> list[MemberCommand]:
        """What an event changes; a refusal changes nothing. A heartbeat that renews a lease needs no command."""
        try:
            if isinstance(event, Register):
                return self._register(event, now_s)
            node = self.node(event.node, event.incarnation)
        except GeartrainError as error:
            return [NodeRefused(error)]
        self._nodes[node.name] = replace(node, last_seen_s=now_s)
        return []

    def tick(self, now_s: float) -> list[MemberCommand]:
        """The nodes that were silent for longer than the lease.

        Who looks so rarely that it must have stood still itself knows of no silence: every node has a new lease then.
        """
        if self._ticked_s is not None and now_s - self._ticked_s > self._lease_s / 2:
            self._nodes = {name: replace(node, last_seen_s=now_s) for name, node in self._nodes.items()}
        self._ticked_s = now_s
        return [
            self._lose(
                node, f"{node.name} is silent for {now_s - node.last_seen_s:.1f} s, the lease is {self._lease_s:g} s"
            )
            for node in self.all_nodes()
            if node.state == "joined" and now_s - node.last_seen_s > self._lease_s
        ]

    def joined(self, role: str) -> list[Node]:
        """Living nodes of a role, by name (w2 before w10)."""
        return [node for node in self.all_nodes() if node.role == role and node.state == "joined"]

    def all_nodes(self) -> list[Node]:
        """All nodes, lost ones included, by name."""
        return sorted(self._nodes.values(), key=lambda node: natural_key(node.name))

    def node(self, name: str, incarnation: int) -> Node:
        """The living node of this name and incarnation. Raises NotFoundError, StaleMessageError."""
        node = self._nodes.get(name)
        if node is None:
            raise NotFoundError(f"no node {name} is registered", node=name)
        if incarnation != node.incarnation:
            raise StaleMessageError(
                f"{name} speaks with incarnation {incarnation}, the cluster knows {node.incarnation}",
                node=name,
                got=incarnation,
                current=node.incarnation,
            )
        if node.state == "lost":
            raise StaleMessageError(f"{name} is lost ({node.reason}): it must start anew", node=name, got=incarnation)
        return node

    def _register(self, event: Register, now_s: float) -> list[MemberCommand]:
        if not hmac.compare_digest(event.token.encode(), self._token.encode()):
            raise AuthError("the cluster token is wrong", role=event.role, host=event.host)
        if event.role not in PREFIXES:
            raise WireError(f"role {event.role!r} does not exist", expected=sorted(PREFIXES), got=event.role)
        if event.name and not re.fullmatch(NAME_PATTERN, event.name):
            raise WireError(f"{event.name!r} is no name of a node", expected=NAME_PATTERN, got=event.name)
        known = self._same_process(event)
        if known is not None:
            self.node(known.name, event.incarnation)
            self._nodes[known.name] = replace(known, last_seen_s=now_s)
            return [Joined(self._nodes[known.name], True, "registered already with this incarnation")]
        name, reason = self._choose_name(event)
        commands: list[MemberCommand] = []
        before = self._nodes.get(name)
        if before is not None:
            self._check_successor(event, before)
            if before.state == "joined":
                commands.append(self._lose(before, f"{name} was started again with incarnation {event.incarnation}"))
        self._nodes[name] = Node(
            name, event.role, event.host, event.device, event.address, event.incarnation, now_s, "joined", reason
        )
        return [*commands, Joined(self._nodes[name], False, reason)]

    def _same_process(self, event: Register) -> Node | None:
        """The node that this process is already, when its registration comes again."""
        for node in self._nodes.values():
            same_process = (node.incarnation, node.address) == (event.incarnation, event.address)
            if same_process and _same_place(node, event) and event.name in ("", node.name):
                return node
        return None

    def _choose_name(self, event: Register) -> tuple[str, str]:
        if event.name:
            return event.name, "named by its launcher"
        for node in self.all_nodes():
            if _same_place(node, event) and node.incarnation < event.incarnation and self._was_left(node, event):
                return node.name, f"takes the place of the {node.name} that was at {event.host}, {event.device}"
        number = 0
        while f"{PREFIXES[event.role]}{number}" in self._nodes:
            number += 1
        return f"{PREFIXES[event.role]}{number}", f"first free name of a {event.role}"

    @staticmethod
    def _was_left(node: Node, event: Register) -> bool:
        """Whether the node's process is gone: it is lost, or another one listens at its address."""
        return node.state == "lost" or (bool(event.address) and node.address == event.address)

    @staticmethod
    def _check_successor(event: Register, before: Node) -> None:
        if before.role != event.role:
            raise ConflictError(
                f"{before.name} is a {before.role}, not a {event.role}", node=before.name, got=event.role
            )
        if event.incarnation <= before.incarnation:
            raise StaleMessageError(
                f"{before.name} registers with incarnation {event.incarnation}, the cluster knows {before.incarnation}",
                node=before.name,
                got=event.incarnation,
                current=before.incarnation,
            )

    def _lose(self, node: Node, reason: str) -> Lost:
        self._nodes[node.name] = replace(node, state="lost", reason=reason)
        return Lost(self._nodes[node.name], reason)


def _same_place(node: Node, event: Register) -> bool:
    return (node.role, node.host, node.device) == (event.role, event.host, event.device)
