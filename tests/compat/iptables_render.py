"""Small clusters as manifests, and the output of ``knft render --backend iptables`` for them."""

import json
from collections.abc import Sequence
from typing import Any

from click.testing import CliRunner, Result

from knft.cli.commands import cli

NODE = "node-1"
PODS = "10.244.0.0/16"
Manifest = dict[str, Any]


def service(name: str = "ns1/svc1", *, vips: Sequence[str] = (), port: Manifest | None = None, **spec: Any) -> Manifest:
    """Return a Service with one port named p80; ``spec`` are fields of the spec, ``port`` fields of the port."""
    namespace, _, own = name.partition("/")
    kind = "LoadBalancer" if vips else "NodePort" if "nodePort" in (port or {}) else "ClusterIP"
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": namespace, "name": own},
        "spec": {
            "type": kind,
            "clusterIP": "10.96.0.1",
            "ports": [{"name": "p80", "port": 80, **(port or {})}],
            **spec,
        },
        "status": {"loadBalancer": {"ingress": [{"ip": vip} for vip in vips]}},
    }


def endpoints(name: str = "ns1/svc1", *addresses: str, port: Manifest | None = None) -> Manifest:
    """Return a slice; an address without prefix is a ready endpoint on another node.

    Prefixes of an address: ``L`` on this node, ``T`` terminating and serving, but not ready; ``LT`` both.
    """
    namespace, _, own = name.partition("/")
    items = []
    for text in addresses:
        flags, address = text.rstrip("0123456789abcdef.:"), text.lstrip("LT")
        conditions = {"ready": "T" not in flags, "serving": True, "terminating": "T" in flags}
        node = NODE if "L" in flags else "node-2"
        items.append({"addresses": [address], "nodeName": node, "conditions": conditions})
    family = "IPv6" if any(":" in text for text in addresses) else "IPv4"
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": namespace,
            "name": f"{own[:200]}-{family.lower()}",
            "labels": {"kubernetes.io/service-name": own},
        },
        "addressType": family,
        "endpoints": items,
        "ports": [{"name": "p80", "port": 80, "protocol": "TCP", **(port or {})}],
    }


def manifest_list(*objects: Manifest) -> str:
    """Return the objects as one manifest."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def run(objects: Sequence[Manifest], *flags: str) -> Result:
    """Run the command for IPv4, unless another --family is among the flags."""
    family = () if "--family" in flags else ("--family", "ipv4")
    command = ["render", "--backend", "iptables", "-f", "-", "--node", NODE, *family, *flags]
    return CliRunner().invoke(cli, command, input=manifest_list(*objects))


def render(objects: Sequence[Manifest], *flags: str) -> str:
    """Return the output of a successful render."""
    done = run(objects, *flags)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def restore_input(objects: Sequence[Manifest], *flags: str) -> str:
    """Return the input of iptables-restore."""
    return render(objects, "--part", "iptables-restore", *flags)


def table(text: str, name: str) -> list[str]:
    """Return the lines of one table."""
    lines = text.splitlines()
    start = lines.index(f"*{name}")
    return lines[start + 1 : lines.index("COMMIT", start)]


def rules(text: str, chain: str, name: str = "nat") -> list[str]:
    """Return the rules of one chain, without its name."""
    start = f"-A {chain} "
    return [line.removeprefix(start) for line in table(text, name) if line.startswith(start)]


def chains(text: str, name: str = "nat") -> list[str]:
    """Return the chains that a table declares."""
    return [line[1:].removesuffix(" - [0:0]") for line in table(text, name) if line.startswith(":")]
