"""The results as Markdown: one table for each size, with kube-proxy's figures as multiples of knft's."""

from collections.abc import Iterator

from tests.bench.results import Results
from tests.cluster.bench.figures import FIGURES, Figure, shown_figures
from tests.cluster.bench.proxy_names import KNFT, PROXY_NAMES

NOTHING = "-"


def markdown(results: Results) -> str:
    """Return a description of the machine, and a table for each size."""
    machine = "; ".join(f"{name}: {label}" for name, label in results.machine.items())
    return "\n".join((machine, "", *tables(results), ""))


def tables(results: Results) -> Iterator[str]:
    """Yield the lines of a table for each size, and below it why a proxy has no figures."""
    for size in results.shapes():
        measured = {record.proxy for record in results.records if record.shape == size}
        proxies = tuple(name for name in PROXY_NAMES if name in measured)
        yield from (f"| {size_text(size)} | {' | '.join(proxies)} |", f"| --- |{' --- |' * len(proxies)}")
        figures = shown_figures(results, size)
        for figure in figures:
            yield f"| {figure.label}, {figure.unit} | {' | '.join(cells(results, figure, size, proxies))} |"
        yield ""
        if figures != FIGURES:
            yield from ("Times are left out, because other processes used most of the CPU.", "")
        for proxy in proxies:
            if note := results.note(proxy, size):
                yield from (f"{proxy}: {note}.", "")


def size_text(name: str) -> str:
    """Return the name of a size, such as ``10000x10``, as ``10 000`` and ``10`` with a multiplication sign."""
    services, _, endpoints = name.partition("x")
    return f"{int(services):,} \N{MULTIPLICATION SIGN} {endpoints}".replace(",", " ")


def cells(results: Results, figure: Figure, size: str, proxies: tuple[str, ...]) -> Iterator[str]:
    """Yield the value for each proxy, for kube-proxy with the ratio to knft's."""
    own = figure.value(results, KNFT, size)
    for proxy in proxies:
        value = figure.value(results, proxy, size)
        if value is None:
            yield NOTHING
        elif proxy == KNFT or not own or not figure.is_compared:
            yield rounded(value)
        else:
            yield f"{rounded(value)} ({rounded(value / own, 2)} times)"


def rounded(value: float, digits: int = 3) -> str:
    """Return a value with this number of significant digits, and with spaces between thousands."""
    exact = float(f"{value:.{digits}g}")
    if abs(exact) >= 10 ** (digits - 1):
        return f"{exact:,.0f}".replace(",", " ")
    return f"{exact:#.{digits}g}"
