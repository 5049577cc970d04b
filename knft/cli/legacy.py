"""``knft render --backend iptables`` and ``--backend ipvs``: what kube-proxy would hand to the kernel."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import click

from knft.cli.legacy_clusters import Objects, clusters_of, read_objects
from knft.cli.legacy_options import iptables_settings, ipvs_settings
from knft.cli.options import config_from_options
from knft.config import Config
from knft.errors import UsageError
from knft.model.names import Family, NamespacedName
from knft_compat import iptables, ipvs
from knft_compat.cluster import Cluster
from knft_compat.page import Page


class _Mode(NamedTuple):
    """A mode with its own flags and files read, and what objects it looks at."""

    page: Callable[[Cluster], Page]
    knows_ip_modes: bool = True
    changed: frozenset[NamespacedName] = frozenset()
    remarks: tuple[str, ...] = ()


def render_legacy(
    backend: str,
    *,
    paths: tuple[str, ...],
    output: str,
    family: str | None,
    part: str | None,
    cleanup: bool,
    **options: Any,  # noqa: ANN401 - click's values
) -> None:
    """Print the pages of a mode, or raise before anything is printed."""
    # The mode's own default is every address, and one of its words is none of nftables' (I.5). ServiceCIDRs mean
    # nothing here; --service-cidr is taken all the same, so that one set of flags does for all backends.
    config = config_from_options({**options, "nodeport_addresses": ()})
    mode = _mode(backend, {**options, "family": family}, cleanup=cleanup)
    given = read_objects(paths, options["before"], knows_ip_modes=mode.knows_ip_modes)
    clusters = {
        item: found for item, found in clusters_of(given, config, options) if family in (None, item.value.lower())
    }
    text = _printed([mode.page(cluster) for cluster in clusters.values()], output, part)
    remarks = (*mode.remarks, *_unknown(given, mode.changed))
    if backend == "ipvs" and not cleanup:
        remarks += tuple(_without_addresses(config, clusters))
    for sentence in remarks:
        click.echo(f"knft: {sentence}", err=True)
    click.echo(text, nl=False)


def _mode(backend: str, options: dict[str, Any], *, cleanup: bool) -> _Mode:
    """Return the mode, having read its flags and files."""
    if backend == "iptables":
        for_iptables = iptables_settings(options)
        make = iptables.cleanup if cleanup else iptables.sync
        return _Mode(lambda cluster: make(cluster, for_iptables), changed=for_iptables.changed or frozenset())
    for_ipvs = ipvs_settings(options)
    make_ipvs = ipvs.cleanup if cleanup else ipvs.sync
    knows_ip_modes = ipvs.knows_ip_modes(for_ipvs.vintage)
    return _Mode(lambda cluster: make_ipvs(cluster, for_ipvs), knows_ip_modes, remarks=for_ipvs.remarks)


def _printed(pages: list[Page], output: str, part: str | None) -> str:
    if part is not None:
        return "".join(_parts(pages, part, output))
    if output == "json":
        return "".join(page.json().decode() for page in pages)
    return "\n".join(page.script() for page in pages)


def _parts(pages: list[Page], name: str, output: str) -> Iterator[str]:
    """Yield one part of each page; raise UsageError where there is none, or no one tool could read them all."""
    tools: dict[str, None] = {}
    for page in pages:
        only = page.only(name)
        if only is None:
            msg = f"--part: there is no part {name!r}; there are {', '.join(page.names)}"
            raise UsageError(msg)
        tools |= dict.fromkeys(part.tool[0] for part in only.parts)
        yield only.json().decode() if output == "json" else page.part(name) or ""
    if output == "text" and len(tools) > 1:
        msg = f"--part: {name} is for another tool in each family, {' and '.join(tools)}; give --family"
        raise UsageError(msg)


def _unknown(given: Objects, changed: frozenset[NamespacedName]) -> Iterator[str]:
    """Yield what there is to say about Services that have changed and that no manifest has."""
    for name in sorted(changed - given.services, key=str):
        yield f"--changed: no manifest has a Service {name}; that is right only where it has gone"


def _without_addresses(config: Config, clusters: dict[Family, Cluster]) -> Iterator[str]:
    """Yield where NodePorts are not served only because nobody says what addresses the node has."""
    for family, cluster in clusters.items():
        if not cluster.node.local_addresses and any(served.plan.port.node_port for served in cluster.ports):
            yield (
                f"no {family.value} address of {config.node_name} is known, and so no NodePort is served: "
                "give --node-ip or --local-address"
            )
