"""Everything in which knft's servers and conntrack entries differ from kube-proxy's on purpose, with the reasons."""

import re

ONLY_KUBE_PROXY = {
    r"go_.*": "knft has no Go runtime",
    r"kubernetes_build_info": "version skew alerts compare it with the API server's version; knft has knft_build_info",
    r"kubernetes_feature_enabled": "no feature gate changes what knft does",
    r"(registered|hidden|disabled)_metrics?_total": "they describe kube-proxy's own metrics registry",
}
"""Patterns of the names of kube-proxy's metrics that knft does not have, and why."""

ONLY_KNFT = {
    r"knft_.*": "they describe what only knft does",
    r"python_.*": "they take the place of go_*",
}
"""Patterns of the names of knft's metrics that kube-proxy does not have, and why."""

OTHER_LABELS: dict[str, str] = {}
"""Patterns of the names of metrics whose label values appear at another time, and why."""


def is_excepted(name: str, exceptions: dict[str, str]) -> bool:
    """Tell whether a pattern of ``exceptions`` matches a metric's name."""
    return any(re.fullmatch(pattern, name) for pattern in exceptions)
