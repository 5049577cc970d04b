"""Explains a Service, a frontend, an address, a NodePort or an endpoint: who gets its packets, and why.

Data flow (docs/operations/explain.md#data-flow)::

    WHAT ── query ── Query ──────────────────┐
    objects ── Cluster ────────┐             ├─ explain ── Explanation ── text or JSON
    rule sets ── Probes ───────┴─ sources ───┘

A source explains Service ports: from objects with ``service_ports``, ``endpoints`` and ``outcomes``, or from rules with
``kernel_ports``. ``frontend_index`` tells which frontends exist, ``selection`` which Service ports a query names, and
``used`` which of them use an endpoint. ``missing`` and ``unserved`` explain what has no rules, ``agreement`` compares
with the kernel.

``explain.explain`` is a function from values to a value. It reads nothing: its callers read manifests, the kernel or
the objects of the running knft. ``related`` tells them which objects an explanation needs. ``knft.interpret`` computes
from the rules what packets get. ``knft.decide`` decides which endpoints are used, and this package says why.
"""
