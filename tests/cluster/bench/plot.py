"""The results as a plot, which needs matplotlib (extra ``bench``)."""

from pathlib import Path
from typing import Any

from tests.bench.results import Results
from tests.cluster.bench.figures import CHANGE_CPU, CHANGE_P50, MEMORY_SETTLED, START_CPU, Figure
from tests.cluster.bench.proxy_names import IPTABLES, KNFT, LEGACY, NFTABLES, PROXY_NAMES
from tests.cluster.bench.sizes import size_named
from tests.cluster.bench.table import size_text

_COLOURS = {KNFT: "#0b6e4f", NFTABLES: "#c0392b", IPTABLES: "#5d6d7e", LEGACY: "#aab7b8"}


def plot(results: Results, path: Path) -> None:
    """Draw a panel for each of four figures, over the number of Services."""
    # Before pyplot is imported: there is no display.
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(2, 2, figsize=(12, 8), layout="constrained")
    for axes, shown in zip(panels.flat, (CHANGE_CPU, CHANGE_P50, START_CPU, MEMORY_SETTLED), strict=True):
        _lines(axes, results, shown)
    figure.suptitle(f"knft and kube-proxy through the API server - {results.machine.get('machine', '')}", fontsize=11)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _lines(axes: Any, results: Results, shown: Figure) -> None:
    sizes = {name: size_named(name).services for name in results.shapes()}
    for proxy in results.proxies(PROXY_NAMES):
        found = [(services, shown.value(results, proxy, name)) for name, services in sizes.items()]
        points = [(services, value) for services, value in found if value]
        if points:
            axes.plot(*zip(*points, strict=True), color=_COLOURS[proxy], marker="o", label=proxy)
    axes.set(title=f"{shown.label}, {shown.unit}", xscale="log", yscale="log", xlabel="Services x endpoints")
    axes.set_xticks(list(sizes.values()), [size_text(name) for name in sizes])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(visible=True, alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)
