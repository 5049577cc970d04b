"""The cluster IPs that knft's IPv4 table contains."""

import yaml

from tests.support.lab.namespace import Namespace
from tests.support.waiting import wait_until


def cluster_ip_octets(namespace: Namespace) -> set[str]:
    """Return the last octets of the cluster IPs in the table."""
    done = namespace.run(["nft", "-j", "list", "set", "ip", "knft", "cluster-ips"], check=False)
    if done.returncode != 0:
        return set()
    listed = yaml.safe_load(done.stdout)["nftables"][1]["set"].get("elem", [])
    return {item.rpartition(".")[2] for item in listed}


def wait_for_cluster_ips(namespace: Namespace, expected: set[str]) -> None:
    """Wait until the last octets of the cluster IPs in the table are ``expected``."""
    wait_until(lambda: cluster_ip_octets(namespace) == expected, f"the cluster IPs are not {expected}", interval=0.02)
