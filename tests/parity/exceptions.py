"""Everything in which knft's servers and conntrack entries differ from kube-proxy's on purpose, with the reasons."""

import re

ONLY_KUBE_PROXY = {
    r"go_.*": "knft has no Go runtime",
    r"process_(network_.*|virtual_memory_max_bytes)": "Python's client library does not have them",
    r"kubernetes_build_info": "version skew alerts compare it with the API server's version; knft has knft_build_info",
    r"kubernetes_feature_enabled": "no feature gate changes what knft does",
    r"(registered|hidden|disabled)_metrics|cardinality_enforcement_.*": "they describe kube-proxy's metrics registry",
    r"(aggregator|apiserver)_.*": "they belong to libraries of the API server, which kube-proxy contains",
    r"workqueue_.*": "they belong to client-go's queues, which knft does not have",
    r"rest_client_(exec_plugin|rate_limiter|transport)_.*": "they describe internals of client-go",
    r"rest_client_(request|response)_size_bytes": "knft does not measure sizes of requests",
}
"""Patterns of the names of kube-proxy's metrics that knft does not have, without ``_total``, and why."""

ONLY_KNFT = {
    r"knft_.*": "they describe what only knft does",
    r"python_.*": "they take the place of go_*",
}
"""Patterns of the names of knft's metrics that kube-proxy does not have, and why."""


def is_excepted(name: str, exceptions: dict[str, str]) -> bool:
    """Tell whether a pattern of ``exceptions`` matches a metric's name."""
    return any(re.fullmatch(pattern, name) for pattern in exceptions)
