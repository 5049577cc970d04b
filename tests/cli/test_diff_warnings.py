"""Warnings of ``knft diff``: frontends that several Services claim, and a missing --cluster-cidr."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from knft.cli.commands import cli
from knft.comparison.contested import contested_frontends
from knft.decide.frontends import LosingClaim
from knft.errors import UsageError
from knft.model.names import ServicePortName
from knft.model.plan import Frontend, FrontendKind
from knft.proxy_mode import Mode
from tests.cli.test_diff_findings import CapturedNode
from tests.support.traced_cluster import FLAGS, OBJECTS

NO_CLUSTER_CIDR = "no --cluster-cidr: packets from pods count as packets from outside; give the value of the cluster, "
WITHOUT_CIDR = ("--node", "node-1", "--service-cidr", "10.96.0.0/16")
CONTESTED = (
    "contested: shop/inner:http and shop/open:http claim 203.0.113.9:80/tcp; kube-proxy's choice is not stable, knft "
    "gives it to shop/inner:http"
)


def _diff(*arguments: str) -> str:
    return CliRunner().invoke(cli, ["diff", *arguments], catch_exceptions=False).stdout


def _warnings(*arguments: str) -> list[str]:
    found: list[str] = json.loads(_diff(*arguments, "-o", "json"))["remarks"]
    return found


@pytest.fixture(scope="module")
def contested(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return manifests in which two Services have one external IP."""

    def claiming(item: dict[str, Any]) -> dict[str, Any]:
        claims = item["kind"] == "Service" and item["metadata"]["name"] in ("open", "inner")
        return {**item, "spec": {**item["spec"], "externalIPs": ["203.0.113.9"]}} if claims else item

    path = tmp_path_factory.mktemp("contested") / "objects.yaml"
    path.write_text(yaml.safe_dump_all([claiming(item) for item in OBJECTS]))
    return str(path)


@pytest.mark.parametrize("mode", ["iptables", "ipvs", "nftables"])
def test_contested_frontend_is_a_warning(contested: str, mode: str) -> None:
    assert _warnings("-f", contested, *FLAGS, "--against", mode).count(CONTESTED) == 1


def test_text_and_page_warn_of_contested_frontends(contested: str) -> None:
    arguments = ("-f", contested, *FLAGS, "--against", "iptables")
    assert CONTESTED in " ".join(_diff(*arguments).split())
    assert CONTESTED.replace("'", "&#39;") in _diff(*arguments, "-o", "html")


def test_contested_frontend_is_a_warning_beside_captured_rules(contested: str, tmp_path: Path) -> None:
    captured = tmp_path / "iptables-save"
    captured.write_text("*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n")
    assert _warnings("-f", contested, *FLAGS, "--iptables-save", str(captured)).count(CONTESTED) == 1


def test_contested_frontends_of_the_same_services_are_one_text() -> None:
    """A NodePort is one frontend in both families; of many texts, the last one counts the other frontends."""

    def lost(owner: str, loser: str, address: str | None, port: int = 80) -> LosingClaim:
        kind = FrontendKind.NODE_PORT if address is None else FrontendKind.EXTERNAL_IP
        names = (ServicePortName("shop", name, "", "TCP") for name in (loser, owner))
        return LosingClaim(Frontend(kind, address, "TCP", port), *names)

    same = [lost("a", "b", "203.0.113.1"), lost("a", "b", None, 30080), lost("a", "b", None, 30080)]
    (text,) = contested_frontends(same)
    assert text.startswith("contested: shop/a and shop/b claim 203.0.113.1:80/tcp and :30080/tcp; kube-proxy's choice ")
    assert text.endswith(" is not stable, knft gives them to shop/a")
    (text,) = contested_frontends([lost("b", "a", "203.0.113.1")])
    assert text.startswith("contested: shop/a and shop/b claim 203.0.113.1:80/tcp; ")
    many = [lost("a", f"b{number}", f"203.0.113.{number}") for number in range(7)]
    *named, last = contested_frontends(many)
    assert len(named) == 5
    assert last == "contested: several Services claim 2 more frontends; `knft lint` names all"
    *_, last = contested_frontends(many[:6])
    assert last == "contested: several Services claim 1 more frontend; `knft lint` names all"


def test_missing_cluster_cidr_is_a_warning_if_packets_differ(tmp_path: Path) -> None:
    """kube-proxy had the range of pods, so its rules tell pods from other hosts."""
    node = CapturedNode(tmp_path)
    captured = tmp_path / "iptables-save"
    captured.write_text(node.captures(Mode.IPTABLES).rules)
    arguments = ("-f", str(node.manifests), "--iptables-save", str(captured))
    (warning,) = (text for text in _warnings(*arguments, *WITHOUT_CIDR) if "--cluster-cidr" in text)
    assert warning.startswith(NO_CLUSTER_CIDR)
    config = tmp_path / "config.conf"
    config.write_text(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nclusterCIDR: 10.244.0.0/16\n"
    )
    with_file = (*WITHOUT_CIDR, "--config", str(config))
    for flags in (FLAGS, with_file, (*WITHOUT_CIDR, "--detect-local-mode", "NodeCIDR")):
        assert not [text for text in _warnings(*arguments, *flags) if "--cluster-cidr" in text]


def test_missing_cluster_cidr_is_no_warning_if_packets_do_not_differ(tmp_path: Path) -> None:
    manifests = str(CapturedNode(tmp_path).manifests)
    assert not [text for text in _warnings("-f", manifests, *WITHOUT_CIDR) if "--cluster-cidr" in text]


def test_configuration_file_is_not_for_rendered_rules_of_kube_proxy(contested: str) -> None:
    with pytest.raises(UsageError, match="--config requires --live or captured rules, such as --iptables-save"):
        _diff("-f", contested, *WITHOUT_CIDR, "--config", "/dev/null")
    with pytest.raises(UsageError, match="--masquerade-all cannot be used with --config; set the field in it"):
        _diff("-f", contested, *WITHOUT_CIDR, "--live", "--config", "/dev/null", "--masquerade-all")
    with pytest.raises(UsageError, match="--config requires -f"):
        _diff("--live", "--config", "/dev/null")
