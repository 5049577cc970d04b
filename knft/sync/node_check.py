"""NodeCheck: warns of probable mistakes in the node's settings, and refuses to lose rules because of them at start.

See docs/behaviour/node.md#mismatch.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from knft.config import PRIMARY, Config
from knft.decide.node import describe_node
from knft.decide.node_problems import (
    address_problem,
    missing_node_problem,
    nodeport_problem,
    service_cidr_flag_problem,
    service_cidr_object_problem,
    shown_first,
    unknown_name_problem,
)
from knft.decide.service_cidrs import find_conflicts
from knft.errors import NodeMismatchError
from knft.families import Family
from knft.nft.objects import Key
from knft.render.fragment import render_node
from knft.render.names import HAIRPIN, NODEPORT_IPS, POD_CIDRS
from knft.sync.dispatch import Dispatcher
from knft.sync.lasting_problems import LastingProblems
from knft.sync.proxier import Proxier

log = logging.getLogger("knft")

_Member = tuple[str, Key]


class _NodeProblem(Struct, frozen=True):
    """A problem, and the members of sets in the kernel that the next sync removes because of it."""

    text: str
    removed: tuple[_Member, ...] = ()


class NodeCheck:
    """Compares the node's settings with the Node objects, the machine's addresses and the tables in the kernel.

    The caller prevents that another thread passes changes to the dispatcher during a call.
    """

    def __init__(
        self, config: Config, dispatcher: Dispatcher, proxiers: Sequence[Proxier], *, allow_loss: bool = False
    ) -> None:
        """Check the settings in ``config``; with ``allow_loss``, problems are logged only."""
        self._config = config
        self._dispatcher = dispatcher
        self._proxiers = proxiers
        self._allow_loss = allow_loss
        self._checked: object = None
        """What the last check of ``log_new_problems`` looked at."""
        self._problems = LastingProblems()
        self._described: dict[Family, str] = {}

    def log_new_problems(self) -> None:
        """Log the node's addresses, and the problems that began or ended since the last call.

        Each sync calls this, and the node changes rarely.
        """
        current = self._checked_values()
        if current == self._checked:
            return
        self._checked = current
        problems = {self._missing_node(), *map(self._address_problem, self._proxiers)}
        problems |= set(map(self._nodeport_problem, self._proxiers))
        for proxier in self._proxiers:
            problems.update(self._service_cidr_flag_problems(proxier), self._service_cidr_object_problems(proxier))
        problems.discard("")
        self._log_node()
        self._problems.update(problems)

    def _log_node(self) -> None:
        """Log the node's addresses and ranges that rules depend on, when they change."""
        for proxier in self._proxiers:
            text = describe_node(proxier.state.latest_node, self._config)
            if self._described.get(proxier.family) != text:
                self._described[proxier.family] = text
                log.info("%s: %s", proxier.family.value, text)

    def _checked_values(self) -> object:
        """Return what the problems of ``log_new_problems`` depend on."""
        dispatcher, states = self._dispatcher, [proxier.state for proxier in self._proxiers]
        return (
            dispatcher.node,
            frozenset(dispatcher.other_nodes) if not dispatcher.has_node else frozenset[str](),
            dispatcher.local_addresses,
            tuple(dispatcher.service_cidrs),
            [(state.latest_node, state.has_node_ports()) for state in states],
        )

    def log_unknown_name(self) -> None:
        """Log a warning if there is no Node object at all, and only other nodes have endpoints."""
        if not self._dispatcher.has_node and not self._dispatcher.other_nodes:
            names = frozenset[str]().union(*(proxier.state.node_names_of_endpoints() for proxier in self._proxiers))
            problem = unknown_name_problem(self._config.node_name, names)
            if problem:
                log.warning("%s", problem)

    def require_usable_service_cidrs(self) -> None:
        """Raise NodeMismatchError if a range of ``--service-cidr`` contains addresses of the node or of pods."""
        if self._allow_loss:
            return
        problems = [text for proxier in self._proxiers for text in self._service_cidr_flag_problems(proxier)]
        if problems:
            msg = f"{'; '.join(problems)}: correct the flag, or accept this with --allow-node-mismatch"
            raise NodeMismatchError(msg)

    def require_no_loss(self) -> None:
        """Raise NodeMismatchError if the first sync would remove rules because of a problem.

        Raises KernelError if the tables cannot be read.
        """
        if self._allow_loss:
            return
        missing = self._missing_node()
        for proxier in self._proxiers:
            # The tables are read only if there is a problem: that takes seconds with 100 000 endpoints.
            if missing or self._address_problem(proxier) or self._nodeport_problem(proxier):
                self._require_no_loss_of_family(proxier, missing)

    def _require_no_loss_of_family(self, proxier: Proxier, missing: str) -> None:
        removed = self._removed_members(proxier)
        at_node = tuple(member for member in removed if member[0] == NODEPORT_IPS)
        at_primary = at_node if PRIMARY in self._config.nodeport_addresses else ()
        local = self._dispatcher.local_addresses or frozenset[str]()
        problems = (
            _NodeProblem(missing, removed),
            _NodeProblem(self._address_problem(proxier), at_primary),
            # If the machine no longer has the address either, no NodePort is lost.
            _NodeProblem(self._nodeport_problem(proxier), tuple(member for member in at_node if member[1][0] in local)),
        )
        causes = [problem for problem in problems if problem.text and problem.removed]
        if causes:
            lost = {member for problem in causes for member in problem.removed}
            msg = (
                f"{'; '.join(problem.text for problem in causes)}; knft would remove {' and '.join(_described(lost))} "
                f"({proxier.family.value}): correct the settings, or accept this with --allow-node-mismatch"
            )
            raise NodeMismatchError(msg)

    def _removed_members(self, proxier: Proxier) -> tuple[_Member, ...]:
        """Return the members of sets that depend on the node, and that the next sync removes.

        Hairpin connections are of local endpoints. They count only if all are removed: pods come and go.
        """
        listing = proxier.read_table()
        found = listing.contents.members if listing is not None else set[_Member]()
        desired = render_node(proxier.state.latest_node, self._config).contents.members
        has_local = self._config.node_name in proxier.state.node_names_of_endpoints()
        depends_on_node = {NODEPORT_IPS, POD_CIDRS} if has_local else {NODEPORT_IPS, POD_CIDRS, HAIRPIN}
        return tuple(member for member in found - desired if member[0] in depends_on_node)

    def _missing_node(self) -> str:
        if self._dispatcher.has_node:
            return ""
        return missing_node_problem(self._config.node_name, self._dispatcher.other_nodes)

    def _address_problem(self, proxier: Proxier) -> str:
        local = self._dispatcher.local_addresses
        return address_problem(proxier.state.latest_node, self._config, local) if local is not None else ""

    def _nodeport_problem(self, proxier: Proxier) -> str:
        local = self._dispatcher.local_addresses or frozenset[str]()
        problem = nodeport_problem(proxier.state.latest_node, self._config, local)
        # If the Node object is missing, that is the reason, and one message is enough.
        return problem if problem and not self._missing_node() and proxier.state.has_node_ports() else ""

    def _service_cidr_flag_problems(self, proxier: Proxier) -> list[str]:
        conflicts = self._service_cidr_conflicts(proxier, self._config.service_cidrs)
        return [service_cidr_flag_problem(cidr, conflict) for cidr, conflict in conflicts.items()]

    def _service_cidr_object_problems(self, proxier: Proxier) -> list[str]:
        return [
            service_cidr_object_problem(item.metadata.name, cidr, conflict)
            for item in self._dispatcher.service_cidrs
            for cidr, conflict in self._service_cidr_conflicts(proxier, item.spec.cidrs or ()).items()
        ]

    def _service_cidr_conflicts(self, proxier: Proxier, cidrs: Iterable[str]) -> dict[str, str]:
        view, local = proxier.state.latest_node, self._dispatcher.local_addresses or ()
        return find_conflicts(
            cidrs, view.family, self._config, node=self._dispatcher.node, node_ip=view.node_ip, local_addresses=local
        )


def _described(removed: Iterable[_Member]) -> Iterator[str]:
    """Yield descriptions of what is lost."""
    values: dict[str, set[str]] = {}
    for container, key in removed:
        values.setdefault(container, set()).add(str(key[0]))
    for container, description in (
        (NODEPORT_IPS, "the NodePorts at"),
        (POD_CIDRS, "the pod CIDR"),
        (HAIRPIN, "the local endpoints"),
    ):
        if container in values:
            yield f"{description} {shown_first(values[container])}"
