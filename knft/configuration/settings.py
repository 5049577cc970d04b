"""Settings: the result of flags, configuration file and defaults for one process of ``knft run``.

Syncs and rules get only a part of it, ``Config`` (knft.config).
"""

from typing import Any, Literal

from msgspec import Struct

from knft.config import Config


class ClientSettings(Struct, frozen=True):
    """How to reach the API server. Without ``kubeconfig`` and ``server`` knft uses the pod's service account.

    ``qps`` and ``burst`` limit requests, not watch events; a negative ``qps`` means no limit.
    """

    kubeconfig: str = ""
    server: str = ""
    """The value of --master; it overrides the kubeconfig."""
    qps: float = 5.0
    burst: int = 10
    sends_credentials_without_tls: bool = False
    """Whether tokens and passwords may be sent to an http:// server."""


class LoggingSettings(Struct, frozen=True):
    """Log format and level.

    Level 0 logs start, stop, full syncs, warnings and errors; 2 also every sync; 4 also API requests and latencies.
    """

    format: Literal["text", "json"] = "text"
    verbosity: int = 0


class ConntrackSettings(Struct, frozen=True):
    """Sysctls of conntrack (docs/behaviour/conntrack.md#sysctls). Timeouts are in seconds, 0 for unchanged."""

    max_per_core: int = 32768
    minimum: int = 131072
    tcp_established_timeout: float = 86400.0
    tcp_close_wait_timeout: float = 3600.0
    tcp_be_liberal: bool = False
    udp_timeout: float = 0.0
    udp_stream_timeout: float = 0.0


class Settings(Struct, frozen=True):
    """All settings of a process; ``config`` holds those that rules depend on.

    Bind addresses are ``IP:port``, or "" to serve nothing. ``document`` is the same configuration as a
    KubeProxyConfiguration, for --write-config-to and /configz. ``warnings`` are messages for the log.
    """

    config: Config
    client: ClientSettings = ClientSettings()
    logging: LoggingSettings = LoggingSettings()
    conntrack: ConntrackSettings = ConntrackSettings()
    bind_address: str = "0.0.0.0"  # noqa: S104 - kube-proxy's default; knft does not listen there
    healthz_bind_address: str = "0.0.0.0:10256"
    metrics_bind_address: str = "127.0.0.1:10249"
    bind_address_hard_fail: bool = False
    profiling: bool = False
    oom_score_adj: int | None = -999
    document: dict[str, Any] = {}
    warnings: tuple[str, ...] = ()
