"""Runs Kubernetes' own end-to-end tests (``e2e.test``) in a cluster of ``deploy.cluster`` with knft on all nodes.

``python -m tests.e2e`` starts the cluster in a directory of its own, runs the specs, prints the results and removes the
cluster. ``specs`` lists the specs that run and those that do not, ``image`` makes the image in which they run commands.
"""
