"""``knft trace`` on captures of a node in mode ipvs: rules, ipsets and virtual servers in separate files."""

from pathlib import Path

from knft.cli.commands import cli
from knft.cli.kube_proxy_options import kube_proxy_options
from knft.comparison.kube_proxy_inputs import ObjectSnapshots, sync_inputs
from knft.families import Family
from knft.proxy_mode import Mode
from knft.source.paths import read_paths
from knft_compat import ipvs
from knft_compat.captures import captures_after_first_sync
from tests.support.traced_cluster import FLAGS, ends, trace, write_manifests


def test_addresses_of_captured_virtual_servers_are_local(tmp_path: Path) -> None:
    """No capture has the addresses of kube-ipvs0, so knft takes them from the virtual servers."""
    manifests = str(write_manifests(tmp_path))
    options = cli.commands["diff"].make_context("diff", ["-f", manifests, *FLAGS]).params
    kube_proxy = kube_proxy_options(Mode.IPVS, {**options, "nodeport_addresses": ()})
    objects = ObjectSnapshots(tuple(read_paths([manifests], None).changes), None)
    cluster = dict(sync_inputs(objects, kube_proxy))[Family.IPV4]
    assert isinstance(kube_proxy.settings, ipvs.Settings)
    texts = captures_after_first_sync(ipvs.sync(cluster, kube_proxy.settings))
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
