"""Explains a Service, a frontend, an address, a NodePort or an endpoint: who gets its packets, and why.

Data flow (docs/operations/explain.md#data-flow)::

    WHAT ── query ── Query ─┐
    objects ─────── Cluster ├─ lookup ─ service_ports, endpoints ─┐
    rule sets ───── Probes ─┘           missing, kernel_ports ────┴─ explain ─ Explanation ─ text or JSON

``explain.explain`` is a function from values to a value. It reads nothing: its callers read manifests, the kernel or,
later, the daemon's objects. What packets get is computed by ``knft.interpret`` from the rules; ``knft.decide`` decides
which endpoints are used, and this package says why.
"""
