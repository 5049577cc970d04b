"""Programs of other projects that tests and the trial cluster run, built from pinned Go modules into a cache.

``kubernetes`` is the Go module with Kubernetes, etcd and CoreDNS; ``helm`` and ``metallb`` need other versions of
Kubernetes' libraries. ``python -m deploy.programs.release v1.37.2`` pins another release of Kubernetes.
"""
