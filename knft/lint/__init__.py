"""Finds what in manifests cannot work or will surprise (docs/operations/lint.md).

Data flow::

    objects ── Manifests ── FamilyCluster for each family ── checks ── Findings ── LintReport ── text or JSON

``checks`` has the text of each finding. ``services``, ``endpoints``, ``frontends``, ``nodes`` and ``slices`` find
them. ``knft.track`` and ``knft.decide`` decide what becomes of the objects, ``knft.explain`` why a Service port is
rejected and who owns a frontend: this package only says it. Like them, it does no I/O.
"""
