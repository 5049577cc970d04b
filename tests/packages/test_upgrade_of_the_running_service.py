"""Upgrade, removal and purge of the package while its service is enabled and runs under systemd."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packages import roots
from tests.packages.conftest import Packages
from tests.packages.installed_service import CONFIGURATION, UNIT, Cluster, Service
from tests.packages.systemd_container import SystemdContainer
from tests.support.waiting import wait_until

LINK = f"/etc/systemd/system/multi-user.target.wants/{UNIT}"
SETTINGS = """apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: /run/credentials/knft.service/kubeconfig}
hostnameOverride: node-1
conntrack: {maxPerCore: 0}
"""


@pytest.fixture
def unit(packages: Packages, tmp_path: Path) -> Iterator[Service]:
    """The unit of the older package, enabled and ready."""
    with SystemdContainer(roots.root(packages.release), {packages.folder: "/packages"}) as container:
        cluster = Cluster(container.namespace, tmp_path)
        made = Service(container, cluster)
        _apt(made, "install", f"/packages/{packages.older.name}", "nftables")
        container.write(CONFIGURATION, SETTINGS)
        made.write_kubeconfig()
        made.override()
        container.run("systemctl", "enable", UNIT)
        try:
            made.start()
            yield made
        finally:
            cluster.stop()


def test_running_service_is_upgraded_removed_and_purged(packages: Packages, unit: Service) -> None:
    """The rules stay until the purge, no step waits for the API server, and a stopped service is not started."""
    package = f"/packages/{packages.newest.name}"
    rules, process = unit.rules(), unit.process
    assert "10.96.0.1 " in rules
    _apt(unit, "install", package)
    unit.wait_restarted(process)
    assert unit.rules() == rules

    unit.cluster.stop()
    process = unit.process
    # For dpkg, this is an upgrade. Nothing starts the API server before it returns.
    _apt(unit, "install", "--reinstall", package)
    wait_until(lambda: unit.process not in (process, "0"), "the service was not restarted", interval=0.1)
    assert unit.show("ActiveState") == "activating"
    assert unit.rules() == rules
    unit.cluster.start()
    wait_until(lambda: unit.show("ActiveState") == "active", "the service is not ready again", interval=0.1)

    unit.container.run("systemctl", "stop", UNIT)
    _apt(unit, "install", "--reinstall", package)
    _require_inactive(unit)
    assert unit.container.run("systemctl", "is-enabled", UNIT).stdout == "enabled\n"
    unit.start()

    user = unit.container.run("id", "--user", "knft").stdout.strip()
    assert user in _users_of_processes(unit)
    _apt(unit, "remove", "knft")
    _require_inactive(unit)
    assert user not in _users_of_processes(unit)
    assert unit.rules() == rules

    _apt(unit, "purge", "knft")
    assert unit.container.run("nft", "list", "tables").stdout == ""
    assert unit.container.run("getent", "passwd", "knft", check=False).stdout == ""
    for path in ("/etc/knft", LINK):
        assert unit.container.run("ls", "-d", path, check=False).stdout == ""


def _require_inactive(unit: Service) -> None:
    messages = "\n".join(str(each["MESSAGE"]) for each in unit.entries()[-40:])
    assert unit.show("ActiveState") == "inactive", messages


def _users_of_processes(unit: Service) -> set[str]:
    """Return the effective user of each process in the container."""
    found = unit.container.run("sh", "-c", "grep -h ^Uid: /proc/[0-9]*/status", check=False).stdout
    return {line.split()[2] for line in found.splitlines()}


def _apt(unit: Service, *arguments: str) -> None:
    dpkg = (word for option in ("unsafe-io", "confold") for word in ("-o", f"Dpkg::Options::=--force-{option}"))
    options = ("-y", "-qq", "--no-install-recommends", *dpkg)
    unit.container.run("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", *options, *arguments)
