"""The cases of kube-proxy's unit tests, with knft's rules and those of ``knft render --backend``.

``corpus`` has the cases; ``python -m tests.upstream.dump`` writes them (docs/verification.md#unit-tests). It copies
kube-proxy's source (``source``), to which the Go files in ``go`` add recorders, and makes one document for each test
(``assemble``). The tests here read these documents (``cases``); they need neither Go nor the source.
"""
