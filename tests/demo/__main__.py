"""``python -m tests.demo``: runs knft in the lab, and prints answering endpoints, syncs, and rejected connections."""

import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.demo.knft_daemon import Knft, Sync
from tests.support.example_shop import DNS_PODS, DNS_PORT, FRONTEND_PODS, FRONTEND_PORT, Shop
from tests.support.lab.outcomes import Answered, Outcome, Protocol, Rejected, Silent
from tests.support.lab.responders import Responders
from tests.support.lab.topology import Lab
from tests.support.lab.traffic import NO_ANSWER, dial, dial_many
from tests.support.privilege import PrivilegeError, ensure_namespaces

CONNECTIONS = 300
SCALES = (8, 1, 5, 2, 3)

ACCEPTED: tuple[tuple[str, str, str, int, Protocol], ...] = (
    ("a pod on the node", "local-3", "10.96.0.10", 80, "tcp"),
    ("a pod on the node", "local-3", "fd00:10:96::10", 80, "tcp"),
    ("the node itself", "node", "10.96.0.10", 80, "tcp"),
    ("an outside client, by NodePort", "outside", "192.0.2.11", 30080, "tcp"),
    ("an outside client, by NodePort", "outside", "2001:db8:1::11", 30080, "tcp"),
    ("a pod, DNS query", "local-3", "10.96.0.53", 53, "udp"),
)
REFUSED: tuple[tuple[str, str, str, int], ...] = (
    ("a Service without endpoints", "local-3", "10.96.0.66", 80),
    ("a Service without endpoints, by NodePort", "outside", "192.0.2.11", 30066),
    ("a port that the Service does not have", "local-3", "fd00:10:96::10", 81),
    ("a cluster IP that no Service has", "local-3", "10.96.0.200", 80),
)

# A pipe or a log file has no width.
console = Console(highlight=False, width=None if sys.stdout.isatty() else 130)


def main() -> None:
    """Run the demo; Ctrl-C ends it at any time."""
    try:
        ensure_namespaces()
    except PrivilegeError as error:
        sys.exit(f"demo: {error}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with Lab() as lab, tempfile.TemporaryDirectory(prefix="knft-demo-") as folder, Responders() as servers:
            _listen(lab, servers)
            _show(lab, Shop(Path(folder), lab), Path(folder))
    except KeyboardInterrupt:
        console.print("\ninterrupted; nothing is left behind")
        sys.exit(130)


def _listen(lab: Lab, servers: Responders) -> None:
    for pod in FRONTEND_PODS:
        servers.serve(lab.host(pod), FRONTEND_PORT)
    for pod in DNS_PODS:
        servers.serve(lab.host(pod), DNS_PORT, "udp")


def _show(lab: Lab, shop: Shop, folder: Path) -> None:
    console.rule("a node with 4 pods, a remote node with 8, an outside client; knft runs on the node")
    with Knft(lab.host("node").namespace, folder) as knft:
        console.print(f"[dim]knft {' '.join(knft.command)}[/dim]")
        _print_syncs("The first syncs: the whole ruleset, one transaction a family", knft.wait_for(2))
        _show_answers(lab)
        _scale(lab, shop, knft)
        _show_refusals(lab)
        for line in knft.other_lines:
            console.print(f"[dim]{line}[/dim]")
    after = _count(lab, *ACCEPTED[0][1:])
    console.print(f"knft has ended; its rules stay: {after.total() - after[NO_ANSWER]} of {CONNECTIONS} answered.")


def _count(lab: Lab, client: str, address: str, port: int, protocol: Protocol) -> Counter[str]:
    return dial_many(lab.host(client), address, port, protocol, CONNECTIONS)


def _shares(counts: Counter[str]) -> str:
    answered = {name: count for name, count in counts.items() if name != NO_ANSWER}
    return ", ".join(f"{name} {count}" for name, count in sorted(answered.items()))


def _show_answers(lab: Lab) -> None:
    table = Table(title=f"Who answers {CONNECTIONS} connections", title_justify="left")
    for column in ("client", "destination", "answered by", "lost"):
        table.add_column(column)
    for label, client, address, port, protocol in ACCEPTED:
        counts = _count(lab, client, address, port, protocol)
        table.add_row(label, f"{address} {port}/{protocol}", _shares(counts), str(counts[NO_ANSWER]))
    console.print(table)


def _scale(lab: Lab, shop: Shop, knft: Knft) -> None:
    table = Table(title="The frontend is scaled while a client keeps connecting", title_justify="left")
    for column in ("endpoints", "synced (IPv4, IPv6)", "elements", "answered by", "lost"):
        table.add_column(column)
    for count in SCALES:
        counts: Counter[str] = Counter()
        stop = threading.Event()
        client = threading.Thread(target=_connect_until, args=(lab, counts, stop))
        client.start()
        before = len(knft.wait_for(2))
        pods = shop.scale(count)
        syncs = knft.wait_for(before + 2)[before:]
        time.sleep(0.3)
        stop.set()
        client.join()
        times = ", ".join(f"{sync.milliseconds:.1f} ms" for sync in syncs)
        elements = ", ".join(f"+{sync.added} -{sync.removed}" for sync in syncs)
        table.add_row(str(len(pods)), times, elements, _shares(counts), str(counts[NO_ANSWER]))
    console.print(table)


def _connect_until(lab: Lab, counts: Counter[str], stop: threading.Event) -> None:
    while not stop.is_set():
        counts.update(dial_many(lab.host("local-3"), "10.96.0.10", 80, "tcp", 20))


def _show_refusals(lab: Lab) -> None:
    table = Table(title="Rejected and dropped connections", title_justify="left")
    for column in ("case", "destination", "the client sees"):
        table.add_column(column)
    for label, client, address, port in REFUSED:
        table.add_row(label, f"{address} {port}/tcp", _describe(dial(lab.host(client), address, port, timeout=1.0)))
    console.print(table)


def _describe(outcome: Outcome) -> str:
    match outcome:
        case Answered(server=server):
            return f"an answer from {server}"
        case Rejected(kind="icmp"):
            return "rejected at once (ICMP port unreachable)"
        case Rejected():
            return "rejected at once (TCP reset)"
        case Silent():
            return "nothing: dropped"
        case _:
            return "unreachable"


def _print_syncs(title: str, syncs: list[Sync]) -> None:
    table = Table(title=title, title_justify="left")
    for column in ("family", "took", "of that in the kernel", "elements"):
        table.add_column(column)
    for sync in syncs:
        kernel = f"{sync.kernel_milliseconds:.1f} ms"
        table.add_row(sync.family, f"{sync.milliseconds:.1f} ms", kernel, f"+{sync.added} -{sync.removed}")
    console.print(table)


if __name__ == "__main__":
    main()
