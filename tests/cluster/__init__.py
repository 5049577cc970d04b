"""``make test-cluster``: knft against a real etcd and a real kube-apiserver, which ``go/`` builds from their modules.

Both are built once, into ``${XDG_CACHE_HOME:-~/.cache}/knft/cluster``. They run in a network namespace of the tests, on
its loopback, with certificates of their own and RBAC; nothing else of Kubernetes is there: no controllers, no kubelet.
Files named ``with_*.py`` need them, and are not collected by ``make test``.
"""
