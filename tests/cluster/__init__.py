"""``make test-cluster``: knft against a real etcd and a real kube-apiserver, which ``go/`` builds from their modules.

Both are built once, into ``${XDG_CACHE_HOME:-~/.cache}/knft/cluster``. They run on the loopback of a network namespace,
with certificates of their own and RBAC. No other component of Kubernetes runs: no controllers, no kubelet.
``make test`` does not collect this folder; tests of its helpers that need no cluster are in ``tests/jobs``.
"""
