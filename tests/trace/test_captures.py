"""Captures of a node in IPVS mode: rules, sets and virtual servers in files of their own."""

from pathlib import Path

from knft.cli.flags import defaults_of_syncs
from knft.cli.legacy_clusters import Objects, clusters_of
from knft.cli.legacy_options import ipvs_settings
from knft.cli.main import cli
from knft.cli.options import config_from_options
from knft.model.names import Family
from knft.source.directory import read_paths
from knft_compat import ipvs
from knft_compat.saved import captures
from tests.trace.cluster import FLAGS, ends, trace, written


def test_virtual_servers_answer_at_addresses_that_nobody_has_named(tmp_path: Path) -> None:
    """No tool prints what is on kube-proxy's device: it has every virtual server's address."""
    manifests = str(written(tmp_path))
    options = cli.commands["diff"].make_context("diff", ["-f", manifests, *FLAGS]).params
    options = {**defaults_of_syncs(), **options, "family": None, "nodeport_addresses": ()}
    objects = Objects(tuple(read_paths([manifests], None).changes), None)
    cluster = dict(clusters_of(objects, config_from_options(options), options))[Family.IPV4]
    texts = captures(ipvs.sync(cluster, ipvs_settings(options)))
    for name, text in (("rules", texts.rules), ("sets", texts.sets), ("servers", texts.servers)):
        (tmp_path / name).write_text(text)
    flags = ("--iptables-save", str(tmp_path / "rules"), "--ipset-save", str(tmp_path / "sets"))
    more = ("--ipvsadm-save", str(tmp_path / "servers"), "--local-address", "192.0.2.11")
    for to, why in (
        ("10.96.0.10:80", "from outside the pod range"),
        ("192.0.2.11:30010", "externalTrafficPolicy Cluster"),
    ):
        found = trace(*flags, *more, "--from", "192.0.2.99", "--to", to)
        seen = {(end["share"], end["endpoint"], end["why"]) for end in ends(found)}
        assert seen == {("1/2", "10.244.1.11:8080", why), ("1/2", "10.244.2.11:8080", why)}
