"""Settings: all that one process of ``knft run`` was told, whoever told it: flags, a file, or defaults."""

from typing import Any, Literal

from msgspec import Struct

from knft.config import Config


class ClientSettings(Struct, frozen=True):
    """How to reach the API server; without ``kubeconfig`` and ``server`` as a pod does (I.1 clientConnection).

    ``qps`` and ``burst`` limit requests, not events of a watch; ``qps`` of 0 or less means no limit.
    """

    kubeconfig: str = ""
    server: str = ""
    """``--master``: wins over the kubeconfig's."""
    qps: float = 5.0
    burst: int = 10


class LoggingSettings(Struct, frozen=True):
    """How to log: 0 says first syncs and problems, 2 every sync, 4 what others are asked, and latencies."""

    format: Literal["text", "json"] = "text"
    verbosity: int = 0


class ConntrackSettings(Struct, frozen=True):
    """What the kernel's conntrack is set to (I.7): numbers, and times in seconds; 0 leaves things as they are."""

    max_per_core: int = 32768
    minimum: int = 131072
    tcp_established_timeout: float = 86400.0
    tcp_close_wait_timeout: float = 3600.0
    tcp_be_liberal: bool = False
    udp_timeout: float = 0.0
    udp_stream_timeout: float = 0.0


class Settings(Struct, frozen=True):
    """Everything that is settled before the cluster is asked; ``config`` holds what rules depend on.

    Bind addresses are ``IP:port``, "" where nothing is to be served. ``document`` is all this as a
    KubeProxyConfiguration, for ``--write-config-to`` and ``/configz``. ``warnings`` are sentences for the log.
    """

    config: Config
    client: ClientSettings = ClientSettings()
    logging: LoggingSettings = LoggingSettings()
    conntrack: ConntrackSettings = ConntrackSettings()
    bind_address: str = "0.0.0.0"  # noqa: S104 - kube-proxy's default; it binds nothing
    healthz_bind_address: str = "0.0.0.0:10256"
    metrics_bind_address: str = "127.0.0.1:10249"
    bind_address_hard_fail: bool = False
    profiling: bool = False
    oom_score_adj: int | None = -999
    feature_gates: dict[str, bool] = {}
    document: dict[str, Any] = {}
    warnings: tuple[str, ...] = ()
