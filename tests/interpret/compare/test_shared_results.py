"""A comparison shares results only between destinations for which they hold."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from knft.cli.commands.rule_sets import diff, render
from knft.comparison.compare import compare
from knft.interpret import iptables
from knft.interpret.compare.edit import join_rule_sets
from knft.interpret.compare.findings import SharedResult
from knft.interpret.compare.report import Report
from knft.proxy_mode import Mode
from tests.interpret.compare.rendered_sides import render_cluster
from tests.interpret.service_model.random_clusters import Cluster, clusters
from tests.support.property_seed import fixed_seed

EXAMPLES = Path(__file__).parents[3] / "examples"

_TO_443 = "-p tcp -m tcp --dport 443"
_CASES = {
    # The walk repeats a query for the translated destination, which another rule matches.
    "second lookup matches another rule": (
        "-A PREROUTING -s 10.1.0.0/16 -p tcp -m tcp --dport 80 -j DNAT --to-destination 172.20.0.9:80",
        f"-A FORWARD -d 172.20.0.9/32 {_TO_443} -j ACCEPT",
        f"-A KUBE-FORWARD -d 172.16.0.0/12 -m conntrack --ctstate NEW {_TO_443} -j DROP",
    ),
    # Only packets to the target itself are not translated.
    "DNAT target itself": (
        "-A PREROUTING -p tcp -m tcp --dport 80 -j DNAT --to-destination 172.20.0.9:80",
        "",
        "-A KUBE-FORWARD -p tcp -m tcp --dport 80 -m conntrack --ctstate NEW -m conntrack ! --ctstate DNAT -j DROP",
    ),
}


@pytest.mark.parametrize("name", _CASES)
def test_dnat_targets_are_compared_separately(name: str, tmp_path: Path) -> None:
    """The result of one destination must not be reused for a destination to which it does not apply."""
    nat, forward, own = _CASES[name]
    arguments = ["-f", str(EXAMPLES), "--node", "node-1"]
    rendered = _rendered([*arguments, "--backend", "iptables", "--family", "ipv4", "--part", "iptables-restore"])
    tables = {
        "nat": f":PREROUTING ACCEPT [0:0]\n-A PREROUTING -j KUBE-SERVICES\n{nat}\n",
        "filter": f":FORWARD ACCEPT [0:0]\n{forward}\n-A FORWARD -j KUBE-FORWARD\n",
    }
    for table, lines in tables.items():
        rendered = rendered.replace(f"*{table}\n", f"*{table}\n{lines}", 1)
    capture = tmp_path / "v4"
    without = _compare_capture(rendered, capture, arguments)
    with_more = _compare_capture(_appended(rendered, own), capture, arguments)
    assert with_more.families[0].counts.different > without.families[0].counts.different


def _rendered(arguments: list[str]) -> str:
    from click.testing import CliRunner

    return CliRunner().invoke(render, arguments).stdout


def _appended(rendered: str, rule: str) -> str:
    head, commit, rest = rendered.partition("COMMIT\n")
    return f"{head}{rule}\n{commit}{rest}"


def _compare_capture(text: str, capture: Path, arguments: list[str]) -> Report:
    from knft.cli.diff import sides_from_options

    capture.write_text(text)
    options = diff.make_context("diff", [*arguments, "--iptables-save", str(capture)]).params
    return compare(
        sides_from_options({name: value for name, value in options.items() if name not in ("output", "live", "watch")})
    )


_TESTS = st.sampled_from(
    [
        "-d 10.96.0.0/24",
        "-d 10.0.0.0/8",
        "-s 10.244.0.0/16",
        "-p tcp -m tcp --dport 80",
        "-p udp -m udp --dport 1:5000",
        "-p tcp -m tcp --dport 30000:32767",
        "-m conntrack --ctstate NEW",
        "-i eth0",
    ]
)
_RULES = st.builds(
    lambda chain, tests, target: f"-A {chain} {' '.join(dict.fromkeys(tests))} -j {target}",
    st.sampled_from(["PREROUTING", "FORWARD", "OUTPUT"]),
    st.lists(_TESTS, max_size=2, unique_by=lambda test: test[:2]),
    st.sampled_from(["DROP", "ACCEPT", "MARK --set-xmark 0x4000/0x4000"]),
)


@pytest.mark.property
def test_sharing_does_not_change_the_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    """With random rules, the comparison finds the same differences without sharing."""

    @fixed_seed(2)
    @settings(max_examples=12, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(clusters(), st.lists(_RULES, max_size=3))
    def check(cluster: Cluster, lines: list[str]) -> None:
        chains = "".join(f":{chain} ACCEPT [0:0]\n" for chain in ("PREROUTING", "FORWARD", "OUTPUT"))
        more = iptables.read("*mangle\n" + chains + "".join(f"{line}\n" for line in lines) + "COMMIT\n", 4)
        sides = render_cluster(Mode.IPTABLES, cluster)
        sides = replace(sides, left={4: join_rule_sets(sides.left[4], more)}, right={4: sides.right[4]})
        shared = _found(compare(sides))
        with monkeypatch.context() as patched:
            patched.setattr(SharedResult, "applies_to", lambda *_: False)
            assert _found(compare(sides)) == shared

    check()


def _found(report: Report) -> set[tuple[str, str, str]]:
    return {
        (group.cause, group.service, group.description)
        for family in report.families
        for group in family.groups
        if group.reason is None
    }
