"""A Kubernetes cluster on one machine, in namespaces, with knft as its Service proxy: ``make cluster``.

    plan ──▶ packages, programs, images ──▶ control plane ──▶ nodes ──▶ manifests

The control plane and each node are a ``Machine``: a process tree in namespaces of its own (network, mount, PID, UTS,
IPC, cgroup), whose process 1 is ``supervisor``. It ends with all its processes, mounts and interfaces when process 1 is
killed; only its cgroups must be removed. Programs are unpacked or built into the cache, so nothing is installed.

``python -m deploy.cluster up`` starts a cluster, and ``down`` removes it; other programs use ``cluster.Cluster``.
"""
