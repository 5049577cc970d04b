"""Settings of commands other than ``knft run`` that have both a configuration file and flags."""

from pathlib import Path

from knft.cli.commands import cli
from knft.cli.options import config_from_options
from knft.config import Config


def test_flags_for_which_the_file_has_no_field_apply_too(tmp_path: Path) -> None:
    file = tmp_path / "config.conf"
    file.write_text(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nclusterCIDR: 10.244.0.0/16\n"
    )
    flags = ("--node", " Node-7", "--node-ip", "192.0.2.17", "--service-cidr", "10.96.0.0/16", "--drop-invalid-packets")
    packet = ("--from", "192.0.2.99", "--to", "10.96.0.10:80")
    context = cli.commands["trace"].make_context("trace", ["-f", "-", "--config", str(file), *flags, *packet])
    assert config_from_options(context.params) == Config(
        "node-7",
        node_ips=("192.0.2.17",),
        cluster_cidrs=("10.244.0.0/16",),
        service_cidrs=("10.96.0.0/16",),
        drop_invalid_packets=True,
    )
