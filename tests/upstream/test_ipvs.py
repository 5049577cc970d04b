"""``knft render --backend ipvs`` for the objects of kube-proxy's unit tests equals what those tests program."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from knft_compat import ipvs
from knft_compat.ipvs.device import BindAddresses, UnbindAddresses
from knft_compat.ipvs.existing import ExistingRealServer, ExistingServer
from knft_compat.ipvs.real_servers import Action
from knft_compat.ipvs.servers import VirtualServers
from knft_compat.ipvs.sets import FilledSets
from knft_compat.sync_input import Masquerade
from knft_compat.sync_output import SyncOutput
from tests.upstream.cases import Case, cases
from tests.upstream.normalize import normalized

_LOOPBACK = "an external IP is a loopback address, which the API server rejects and knft ignores"
_EXCEPTIONS = {"TestExternalIPs #0": _LOOPBACK, "TestOnlyLocalExternalIPs #0": _LOOPBACK}
"""Cases that differ on purpose, with the reason."""

_SERVER = re.compile(r"(\S+):(\d+)/(\w+) (\w+) flags=\d+ timeout=(\d+)")
_REAL_SERVER = re.compile(r"(\S+):(\d+) weight=(\d+)")

Result = dict[str, Any]


def _with_valid_ports(case: Case) -> Case:
    """Return a case with port 1 instead of port 0: some tests set no port, and the API server rejects that."""

    def changed(value: Any) -> Any:
        text = json.dumps(value).replace('"port": 0,', '"port": 1,')
        return json.loads(re.sub(r"(?<=tcp:)0\b|(?<=:)0(?=/TCP)", "1", text))

    return Case(*map(changed, case))


@pytest.mark.parametrize("case", [pytest.param(_with_valid_ports(case), id=case.name) for case in cases("ipvs")])
def test_rules_servers_and_sets_are_equal(case: Case) -> None:
    if case.name in _EXCEPTIONS:
        assert _rendered(case) != case.result, "remove this exception: the result is equal"
    else:
        assert _rendered(case) == case.result


def test_exceptions_name_cases() -> None:
    assert _EXCEPTIONS.keys() <= {case.name for case in cases("ipvs")}


def _rendered(case: Case) -> Result:
    """Return the state after the sync in the form of the corpus."""
    given = case.configuration
    settings = ipvs.Settings(
        scheduler=given["scheduler"],
        existing_servers=tuple(_existing_servers(given["existingServers"])),
        existing_addresses=tuple(given["existingAddresses"]),
    )
    previous = None if given["initialSync"] else case.previous_changes() or ()
    output = ipvs.sync(case.sync_input(settings, previous), settings)
    return {
        "addresses": sorted(_addresses(output, given["existingAddresses"])),
        "ipsets": dict(_sets(output)),
        "iptables-restore": _rules(output, given["masqueradeMark"]),
        "servers": _servers(output),
    }


def _existing_servers(listed: dict[str, list[str]]) -> Iterator[ExistingServer]:
    for name, reals in listed.items():
        ((address, port, protocol, scheduler, timeout),) = _SERVER.findall(name)
        parsed = [found for real in reals for found in _REAL_SERVER.findall(real)]
        yield ExistingServer(
            address.strip("[]"), int(port), protocol, scheduler, int(timeout),
            real_servers=tuple(ExistingRealServer(at.strip("[]"), int(to), int(weight)) for at, to, weight in parsed),
        )  # fmt: skip


def _rules(output: SyncOutput, mark: str) -> list[str]:
    """Return the rules; the tests' proxier has no mark, unlike one that kube-proxy makes, and IPv4's names of sets."""
    text = (output.part_text("iptables-restore") or "").replace(Masquerade().mark_text, mark)
    return normalized(text.replace("KUBE-6-", "KUBE-").splitlines())


def _sets(output: SyncOutput) -> Iterator[tuple[str, list[str]]]:
    for part in _parts(output, FilledSets):
        for item in part.sets:
            if item.entries:
                yield item.name.replace("KUBE-6-", "KUBE-"), sorted(item.entries)


def _addresses(output: SyncOutput, existing: Iterable[str]) -> set[str]:
    bound = {network.partition("/")[0] for part in _parts(output, BindAddresses) for network in part.networks}
    unbound = {network.partition("/")[0] for part in _parts(output, UnbindAddresses) for network in part.networks}
    return {*existing, *bound} - unbound


def _servers(output: SyncOutput) -> dict[str, list[str]]:
    found = {}
    for part in _parts(output, VirtualServers):
        for server in part.servers:
            flags = 1 if server.persistent else 0
            name = f"{_at(server)}/{server.protocol} {server.scheduler} flags={flags} timeout={server.persistent}"
            kept = (real for real in server.reals if real.action is not Action.DELETE)
            found[name] = sorted(f"{real.address_and_port} weight={real.weight}" for real in kept)
    return found


def _at(server: Any) -> str:
    return f"[{server.address}]:{server.port}" if ":" in server.address else f"{server.address}:{server.port}"


def _parts(output: SyncOutput, kind: type) -> list[Any]:
    return [part for part in output.parts if isinstance(part, kind)]
