"""The results as a plot, which needs matplotlib (extra ``bench``)."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.bench.latency import FIRST_SERVICE, LAST_SERVICE
from tests.bench.peers.registry import PEERS
from tests.bench.record import BARE, FULL, KNFT, MEMORY
from tests.bench.results import Results

_COLOURS = {KNFT: "#0b6e4f", BARE: "#7fb69e", "kube-proxy 1.36": "#c0392b", "kube-proxy 1.35": "#e59866",
            "iptables-legacy": "#5d6d7e", "iptables-nft": "#aab7b8"}  # fmt: skip


def can_plot() -> bool:
    """Tell whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def plot(results: Results, path: Path, sizes: dict[str, int]) -> None:
    """Draw four panels; ``sizes`` are the plain shapes, with their numbers of Services."""
    # Before pyplot is imported: there is no display.
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(2, 2, figsize=(12, 8), layout="constrained")
    _lines(panels[0][0], results, sizes, (FULL, "total_s"), "Full sync, s")
    _lines(panels[0][1], results, sizes, ("endpoint replaced", "p50_ms"), "Endpoint replaced, p50 (line to p99), ms")
    _lines(panels[1][0], results, sizes, (MEMORY, "kernel_mib"), "Kernel memory of the table, MiB")
    panels[1][0].set_yscale("linear")
    _bars(panels[1][1], results, sizes)
    figure.suptitle(f"knft and kube-proxy's layouts - {results.machine.get('machine', '')}", fontsize=11)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _lines(axes: Any, results: Results, sizes: dict[str, int], what: tuple[str, str], title: str) -> None:
    measure, name = what
    for proxy in results.proxies((KNFT, BARE, *PEERS)):
        found = [(size, results.value(proxy, shape, measure, name), shape) for shape, size in sizes.items()]
        points = [(size, value, shape) for size, value, shape in found if value is not None and value > 0]
        if not points:
            continue
        style = {"color": _COLOURS[proxy], "marker": "o", "label": proxy, "linestyle": "--" if proxy == BARE else "-"}
        axes.plot([size for size, _, _ in points], [value for _, value, _ in points], **style)
        for size, value, shape in points:
            high = results.value(proxy, shape, measure, "p99_ms")
            if high is not None:
                axes.plot([size, size], [value, high], color=_COLOURS[proxy], linewidth=1)
    axes.set(title=title, xscale="log", yscale="log", xlabel="Services x endpoints")
    axes.set_xticks(list(sizes.values()), [f"{shape}" for shape in sizes])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(visible=True, alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)


def _bars(axes: Any, results: Results, sizes: dict[str, int]) -> None:
    shown = [
        (f"{proxy}\n{shape}" if proxy != "no rules" else proxy, proxy, shape)
        for proxy in ("no rules", KNFT, *PEERS)
        for shape in sizes
        if results.value(proxy, shape, FIRST_SERVICE, "p50_us") is not None
    ]
    for offset, label, alpha in ((-0.2, FIRST_SERVICE, 1.0), (0.2, LAST_SERVICE, 0.55)):
        for place, (_, proxy, shape) in enumerate(shown):
            value = results.value(proxy, shape, label, "p50_us")
            if value is not None:
                axes.bar(place + offset, value, 0.38, color=_COLOURS.get(proxy, "#333333"), alpha=alpha)
    axes.set_xticks(range(len(shown)), [label for label, _, _ in shown], rotation=60, fontsize=7)
    axes.set(title="New connection, p50, µs: first and (pale) last Service", yscale="log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_yticks([5, 10, 20, 50, 100, 200, 500])
    axes.minorticks_off()
    axes.set_ylim(bottom=5)
    axes.grid(visible=True, axis="y", alpha=0.3)
