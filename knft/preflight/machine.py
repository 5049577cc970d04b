"""Reads the facts on this machine. Nothing is changed, but the kernel may load modules, as at the start of knft.

Each reader returns what it read, or why it could not, so that the other checks still run if one reader fails.
"""

import os
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from knft.app.leftover_warnings import find_leftovers
from knft.app.leftovers import KubeProxyLeftovers
from knft.comparison.compare import compare
from knft.comparison.explained import accepting_addresses, cluster_of
from knft.comparison.kube_proxy_inputs import interface_addresses
from knft.comparison.live import LiveSides
from knft.comparison.machine import READ_TIMEOUT_SECONDS
from knft.comparison.node_name import has_node, node_warnings
from knft.config import Config
from knft.configuration.settings import ConntrackSettings
from knft.decide.node_problems import address_problem, nodeport_problem
from knft.errors import CaptureError, KernelError, KnftError, UnsupportedError
from knft.families import Family
from knft.interpret.compare.report import Report
from knft.kernel import programs
from knft.kernel.addresses import local_addresses
from knft.kernel.base_chains import base_chains
from knft.kernel.connections import open_connections
from knft.kernel.conntrack_usage import conntrack_entries, conntrack_maximum
from knft.kernel.libnftables_version import libnftables_version
from knft.kernel.listings import list_foreign_table_json
from knft.kernel.mark_routes import mark_routes
from knft.kernel.probe import probe, require_privilege
from knft.kernel.process import WorkerProcess
from knft.kernel.sysctls import differing_values
from knft.kernel.table_flags import table_flags
from knft.leftovers.saved import SavedRules
from knft.model.objects import ObjectChange
from knft.preflight.facts import (
    ConfigurationFacts,
    ConntrackFacts,
    Facts,
    HostFacts,
    MarkUse,
    ObjectFacts,
    RuleFacts,
    Unread,
)
from knft.preflight.nftables_marks import mark_uses, tables_to_read
from knft.proxy_mode import Mode
from knft.render.names import TABLE
from knft.silence import without_log
from knft.sync.assemble import states_after_batches
from knft.sync.state import ServiceState

Value = TypeVar("Value")

NO_OBJECTS = Unread("no objects were given", "name objects with -f, or the API server with --kubeconfig", failed=False)
_INVALID = Unread("the configuration is invalid", "correct it first", failed=False)
_NO_RULES = Unread(
    "there are no rules of kube-proxy or knft to compare with",
    "run the command while one of them runs here",
    failed=False,
)


class Inputs(Struct, frozen=True):
    """What the command line names. ``changes`` are the objects as additions.

    ``is_image`` tells that knft runs in its image. ``diff_command`` prints the comparison. ``lists_foreign_tables``
    tells that nftables tables of other programs are to be listed.
    """

    config: Config
    conntrack: ConntrackSettings
    configuration: ConfigurationFacts | None
    changes: tuple[ObjectChange, ...] | Unread
    is_image: bool
    diff_command: str
    lists_foreign_tables: bool = False


def read_facts(inputs: Inputs) -> Facts:
    """Return the facts; raise UnsupportedError without CAP_NET_ADMIN."""
    require_privilege()
    # First, because it makes the kernel load nf_tables and conntrack.
    host = _read_host(is_image=inputs.is_image)
    rules = _read_rules(lists_foreign_tables=inputs.lists_foreign_tables)
    return Facts(
        inputs.config,
        host,
        rules,
        inputs.configuration,
        ConntrackFacts(conntrack_entries(), conntrack_maximum(), differing_values(inputs.conntrack)),
        _read_comparison(inputs, rules),
        _read_objects(inputs),
        inputs.diff_command,
    )


def attempt(read: Callable[[], Value]) -> Value | Unread:
    """Return what ``read`` returns, or the text of its KnftError."""
    try:
        return read()
    except KnftError as error:
        return Unread(str(error))


def _read_host(*, is_image: bool) -> HostFacts:
    version = attempt(libnftables_version)
    return HostFacts(os.uname().release, attempt(_unsupported), version, attempt(_nft_version), is_image)


def _unsupported() -> str:
    """Return the feature that the kernel lacks, "" if it has all."""
    try:
        with WorkerProcess() as library:
            probe(library)
    except UnsupportedError as error:
        return str(error)
    return ""


def _nft_version() -> str | None:
    program = programs.find("nft")
    return None if program is None else programs.run([program, "--version"], READ_TIMEOUT_SECONDS)


def _read_rules(*, lists_foreign_tables: bool) -> RuleFacts:
    errors: list[str] = []
    leftovers = KubeProxyLeftovers(lambda _, error: errors.append(str(error)), READ_TIMEOUT_SECONDS)
    saved = {backend.name: rules for backend, rules in leftovers.saved_rules}
    found: dict[Mode, tuple[str, ...]] = {}
    for mode in Mode:
        try:
            found[mode] = tuple(find_leftovers(leftovers, mode))
        except KernelError as error:
            errors.append(str(error))
    return RuleFacts(
        attempt(base_chains),
        saved,
        found,
        tuple(dict.fromkeys(errors)),
        attempt(mark_routes),
        attempt(lambda: _read_foreign_tables(saved, lists_them=lists_foreign_tables)),
        attempt(_knft_tables),
    )


def _read_foreign_tables(
    saved: Mapping[str, SavedRules], *, lists_them: bool
) -> Mapping[str, tuple[MarkUse, ...] | Unread | None]:
    flags = table_flags()
    tables = tables_to_read(flags, saved)
    if not tables or not lists_them:
        return {" ".join(table): None for table in tables}
    with WorkerProcess() as library:

        def read(family: str, name: str, printed_chains: Collection[str]) -> tuple[MarkUse, ...] | Unread:
            try:
                listing = list_foreign_table_json(library, family, name)
                return () if listing is None else mark_uses(listing, printed_chains)
            except (CaptureError, KernelError) as error:
                return _unreadable_table(family, name, flags[family, name], error)

        return {" ".join(table): attempt(partial(read, *table, chains)) for table, chains in tables.items()}


def _unreadable_table(family: str, name: str, flags: Collection[str], error: KnftError) -> Unread:
    # libnftables 1.0.6 lists arbitrary memory as the name of flag owner, so the JSON may be truncated.
    reason = "old versions of libnftables list flag owner incorrectly" if "owner" in flags else str(error)
    command = shlex.join(("nft", "list", "table", family, name))
    remedy = f"look for the masquerade bit in `{command}`"
    return Unread(f"rules of nftables table {family} {name} were not read: {reason}", remedy, failed=False)


def _knft_tables() -> tuple[str, ...]:
    return tuple(sorted(f"{family} {name}" for family, name in table_flags() if name == TABLE))


def _read_comparison(inputs: Inputs, rules: RuleFacts) -> Report | Unread:
    """Compare the rules in the kernel with those for the objects, as ``knft diff --live`` does."""
    changes = inputs.changes
    if isinstance(changes, Unread):
        return changes
    if inputs.configuration is not None and inputs.configuration.errors:
        return _INVALID
    if isinstance(rules.knft_tables, Unread):
        return rules.knft_tables
    if not (rules.knft_tables or any(rules.leftovers.values())):
        return _NO_RULES
    with without_log():
        return attempt(lambda: _comparison(inputs.config, changes))


def _comparison(config: Config, changes: tuple[ObjectChange, ...]) -> Report:
    # The points "node" and "comparison" have these warnings, with remedies.
    return compare(replace(LiveSides(config, lambda: changes).read(), object_warnings=(), difference_warning=""))


def _read_objects(inputs: Inputs) -> ObjectFacts | Unread:
    changes, config = inputs.changes, inputs.config
    if isinstance(changes, Unread):
        return changes
    if inputs.configuration is not None and inputs.configuration.errors:
        return _INVALID
    own = attempt(local_addresses)
    if isinstance(own, Unread):
        return own
    with without_log():
        (states,) = states_after_batches(config, changes)
    addresses = (*own, *interface_addresses(changes, config))
    return ObjectFacts(
        cluster_of(states, changes).families,
        {family: tuple(accepting_addresses(config, state, addresses)) for family, state in states.items()},
        attempt(lambda: {family: open_connections(family) for family in Family}),
        tuple(_node_problems(config, changes, states, own)),
        has_node(config, changes),
        frozenset(family for family in Family if config.serves_localhost_nodeports(family)),
    )


def _node_problems(
    config: Config, changes: tuple[ObjectChange, ...], states: Mapping[Family, ServiceState], own: Collection[str]
) -> Iterator[str]:
    """Yield what ``knft run`` would say about the node's name and addresses."""
    yield from node_warnings(config, changes)
    for state in states.values():
        problem = address_problem(state.node, config, own)
        if not problem and state.has_node_ports():
            problem = nodeport_problem(state.node, config, own)
        if problem:
            yield problem
