"""Faults and neighbours in a cluster of ``deploy.cluster``, while clients connect: ``make test-faults``.

``python -m tests.faults`` starts the cluster, and makes one fault after the other. Client processes in pods, on a node
and outside keep connections open and make new ones. Each connection that fails must be explained by a pod that died;
``verdict`` says what that takes.

    client ──▶ records ──▶ verdict ◀── pod_lives ◀── the API server's Pods and EndpointSlices
"""
