"""Upgrade, removal and purge of the package while its service is enabled and runs under systemd."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packages import roots
from tests.packages.conftest import Packages
from tests.packages.installed_service import CONFIGURATION, KUBECONFIG, UNIT, Cluster, Service
from tests.packages.older import VERSION
from tests.packages.systemd_container import SystemdContainer
from tests.support.waiting import wait_until

MARKER = "/run/knft-stopped-by-prerm"
POLICY = "/usr/sbin/policy-rc.d"
SCRIPTS = "/var/lib/dpkg/info"
LINK = f"/etc/systemd/system/multi-user.target.wants/{UNIT}"
OTHER_ROOT = "/srv/other"
OTHER_TABLES = ["table ip other", "table ip6 other"]
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
    """The rules stay until the purge, no step waits for the API server, and a stopped service is not started.

    The purge deletes no table of another program.
    """
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

    _check_policy(unit)
    _check_other_root(unit, package)
    _check_aborted_removal(unit)
    _check_removal(unit, package)
    _check_purge(unit)


def _check_removal(unit: Service, package: str) -> None:
    """The rules stay, and the service is still enabled if the package is installed again."""
    rules = unit.rules()
    user = unit.container.run("id", "--user", "knft").stdout.strip()
    assert user in _users_of_processes(unit)
    _apt(unit, "remove", "knft")
    _require_inactive(unit)
    assert user not in _users_of_processes(unit)
    assert unit.rules() == rules
    _apt(unit, "install", package)
    _require_inactive(unit)
    assert unit.container.run("systemctl", "is-enabled", UNIT).stdout == "enabled\n"


def _check_purge(unit: Service) -> None:
    """Nothing is left but tables of other programs."""
    for table in OTHER_TABLES:
        unit.container.run("nft", f"add {table}")
    _apt(unit, "purge", "knft")
    assert unit.container.run("nft", "list", "tables").stdout.splitlines() == OTHER_TABLES
    assert unit.container.run("getent", "passwd", "knft", check=False).stdout == ""
    for path in ("/etc/knft", LINK, MARKER):
        assert unit.container.run("ls", "-d", path, check=False).stdout == ""


def _check_policy(unit: Service) -> None:
    """An upgrade does not restart the service if the administrator forbids it."""
    process = unit.process
    unit.container.write(POLICY, '#!/bin/sh\necho "$*" >/run/asked\nexit 101\n')
    unit.container.run("chmod", "755", POLICY)
    unit.container.run(f"{SCRIPTS}/knft.postinst", "configure", VERSION)
    assert unit.container.read("/run/asked") == "knft.service restart\n"
    unit.container.run("rm", POLICY)
    assert (unit.process, unit.show("ActiveState"), unit.show("Job")) == (process, "active", "")


def _check_other_root(unit: Service, package: str) -> None:
    """A package in another directory is purged without changing this host's service, rules, user and kubeconfig."""
    rules, process = unit.rules(), unit.process
    unit.container.write(f"{OTHER_ROOT}/var/lib/dpkg/status", "")
    dpkg = ("dpkg", f"--root={OTHER_ROOT}", "--force-depends,script-chrootless,unsafe-io")
    unit.container.run(*dpkg, "--install", package)
    unit.container.write(OTHER_ROOT + KUBECONFIG, "")
    unit.container.run(*dpkg, "--purge", "knft")
    assert unit.container.run("ls", "-d", f"{OTHER_ROOT}/etc/knft", check=False).stdout == ""
    assert (unit.process, unit.rules()) == (process, rules)
    unit.container.run("test", "-e", KUBECONFIG)
    unit.container.run("getent", "passwd", "knft")


def _check_aborted_removal(unit: Service) -> None:
    """The service, which prerm has stopped, is started again."""
    process = unit.process
    unit.container.run("sh", "-c", f"echo 'exit 1' >>{SCRIPTS}/knft.prerm")
    refused = unit.container.run("dpkg", "--remove", "knft", check=False)
    assert refused.returncode == 1
    unit.wait_restarted(process)
    unit.container.run("sed", "-i", "$d", f"{SCRIPTS}/knft.prerm")
    assert unit.container.run("test", "-e", MARKER, check=False).returncode == 1


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
