"""The configuration files of a node: of the kubelet, containerd and CNI. Computes only."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploy.cluster.images import PAUSE
from deploy.cluster.keys import Keys
from deploy.cluster.packages import Unpacked
from deploy.cluster.plan import DOMAIN, NodePlan, Plan

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
CNI_CONFIGURATION = "/etc/cni/net.d"
CONTAINERD_FOLDER, KUBELET_FOLDER = "/var/lib/containerd", "/var/lib/kubelet"
_MTU = 1500

KUBELET_SYSCTLS: Mapping[str, str] = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""Sysctls that the kubelet sets, and which have no namespace: it sees these values, and the machine keeps its own."""


def node_files(plan: Plan, node: NodePlan, keys: Keys, packages: Unpacked, plugins: Path) -> Mapping[str, str]:
    """Return the names and texts of the files; ``plugins`` is the directory of the CNI plugins."""
    return {
        "kubelet.yaml": json.dumps(kubelet_configuration(plan, node, keys), indent=2),
        "containerd.toml": containerd_configuration(packages, plugins),
        "cni.conflist": json.dumps(cni_configuration(node), indent=2),
        "resolv.conf": "",
        **{_sysctl_file(name): f"{value}\n" for name, value in KUBELET_SYSCTLS.items()},
    }


def sysctl_binds(folder: Path) -> Mapping[str, str]:
    """Return the binds that show the kubelet the values of ``KUBELET_SYSCTLS``."""
    return {f"/proc/sys/{name}": str(folder / _sysctl_file(name)) for name in KUBELET_SYSCTLS}


def _sysctl_file(name: str) -> str:
    return f"sysctl-{name.replace('/', '-')}"


def kubelet_configuration(plan: Plan, node: NodePlan, keys: Keys) -> dict[str, Any]:
    """Return the kubelet's configuration."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": True,
        "enforceNodeAllocatable": ["pods"],
        "failSwapOn": False,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": keys.path("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": keys.path(f"{node.name}.crt"),
        "tlsPrivateKeyFile": keys.path(f"{node.name}.key"),
        "clusterDNS": list(plan.dns_addresses),
        "clusterDomain": DOMAIN,
        "resolvConf": "/etc/resolv.conf",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        # Needs iptables, and kube-proxy no longer uses these chains.
        "makeIPTablesUtilChains": False,
        # The machine's disk may be nearly full, which is no reason to evict pods.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "serializeImagePulls": False,
        # The pod CIDR has addresses for 253; the default is 110.
        "maxPods": 250,
        "volumePluginDir": f"{KUBELET_FOLDER}/volumeplugins",
    }


def containerd_configuration(packages: Unpacked, plugins: Path) -> str:
    """Return containerd's configuration."""
    return f"""version = 2
root = "{CONTAINERD_FOLDER}"
state = "/run/containerd"

[grpc]
  address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  # Without CAP_SYS_RESOURCE, no process may get a lower value than containerd has.
  restrict_oom_score_adj = true

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{CNI_CONFIGURATION}"

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "{packages.runc}"
        SystemdCgroup = false
"""


def cni_configuration(node: NodePlan) -> dict[str, Any]:
    """Return CNI's configuration: a routed link for each pod, so that replies pass the node's conntrack."""
    routes = [{"dst": "::/0" if ":" in cidr else "0.0.0.0/0"} for cidr in node.pod_cidrs]
    ranges = [[{"subnet": cidr}] for cidr in node.pod_cidrs]
    ipam = {"type": "host-local", "dataDir": "/run/cni-ipam", "ranges": ranges, "routes": routes}
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {"type": "ptp", "ipMasq": False, "mtu": _MTU, "ipam": ipam},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def ptp_wrapper(plugin: Path) -> str:
    """Return a program that runs the plugin ptp without duplicate address detection, which takes each pod 2 s."""
    switch = "for each in all default; do echo 0 > /proc/sys/net/ipv6/conf/$each/accept_dad; done"
    return f"""#!/bin/sh
[ "$CNI_COMMAND" = ADD ] && nsenter --net="$CNI_NETNS" sh -c '{switch}' 2> /dev/null
exec {plugin}
"""
