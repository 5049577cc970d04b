"""The daemon of ``knft run``, as kube-proxy's cmd/kube-proxy/app: start, object sources, threads, shutdown.

Inputs: Settings and RunOptions. ``knft.sync`` programs the rules, ``knft.serve`` answers probes.
"""
