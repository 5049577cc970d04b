"""Hypothesis strategies for valid configurations, with a value strategy for each field of the table."""

from typing import Any

from hypothesis import strategies as st

from knft.configuration.gates import GATES
from knft.configuration.options import INT32_RANGE, Kind
from knft.configuration.table import FIELDS
from knft.durations import format_duration

SECOND = 10**9
_PLAIN = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
_AMBIGUOUS_YAML = st.sampled_from(
    ["1e5", "0x10", "yes", "null", "~", "1_0", "2001:1:0", ".5", "<<", "=", "- a", "a: b", "#", " "]
)
_TEXT = _PLAIN | _AMBIGUOUS_YAML
_IPV4 = st.ip_addresses(v=4).map(str)
_IPV6 = st.ip_addresses(v=6).map(str).filter(lambda text: not text.startswith("::ffff:"))
_CIDR4 = st.tuples(_IPV4, st.integers(0, 32)).map(lambda pair: f"{pair[0]}/{pair[1]}")
_CIDR6 = st.tuples(_IPV6, st.integers(0, 128)).map(lambda pair: f"{pair[0]}/{pair[1]}")
_PORT = st.integers(1, 65535)
_BIND_ADDRESS = (
    st.sampled_from(["", "192.0.2.1", "fd00::1"])
    | st.tuples(_IPV4, _PORT).map(lambda pair: f"{pair[0]}:{pair[1]}")
    | st.tuples(_IPV6, _PORT).map(lambda pair: f"[{pair[0]}]:{pair[1]}")
)
_DURATION = st.integers(0, 400 * 86400 * SECOND).map(format_duration) | st.sampled_from(
    ["0", "0s", "1.5h", "90m", "+3s", "1ns"]
)
_PERIOD = st.integers(60 * SECOND, 300 * 86400 * SECOND).map(format_duration) | st.just("0s")
_MIN_PERIOD = st.integers(0, 30 * SECOND).map(format_duration) | st.sampled_from(["0", "1ns", "999ns", "1us"])
_NAME = st.from_regex(r"[A-Za-z0-9_.@:-]{1,15}", fullmatch=True)
_GATES = st.dictionaries(st.sampled_from(sorted(GATES)), st.booleans()).map(
    lambda gates: {name: on or GATES[name].is_locked for name, on in gates.items()}
)

_KIND_STRATEGIES: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.BOOL: st.booleans(),
    Kind.INTEGER: st.integers(0, INT32_RANGE[1]),
    Kind.FLOAT: st.floats(-1e6, 1e6, width=32) | st.integers(-5, 5),
    Kind.STRING: _TEXT,
    Kind.DURATION: _DURATION,
    Kind.LIST: st.lists(_CIDR4 | _CIDR6, max_size=3),
    Kind.FEATURE_GATES: _GATES,
    Kind.VMODULE: st.lists(st.fixed_dictionaries({"filePattern": _TEXT, "verbosity": st.integers(0, 9)}), max_size=2),
}
_FIELD_STRATEGIES: dict[str, st.SearchStrategy[Any]] = {
    "bindAddress": _IPV4 | _IPV6 | st.just(""),
    "clusterCIDR": st.just("") | _CIDR4 | _CIDR6 | st.tuples(_CIDR4, _CIDR6).map(",".join),
    "detectLocal.bridgeInterface": _NAME,
    "detectLocal.interfaceNamePrefix": _NAME,
    "detectLocalMode": st.sampled_from(["", "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"]),
    "healthzBindAddress": _BIND_ADDRESS,
    "hostnameOverride": st.sampled_from(["", "1e5", "0x10", "yes", " Node-1 ", "null", "1.5"])
    | st.from_regex(r"[A-Za-z0-9]{1,9}(-[a-z0-9]{1,9})?(\.[a-z0-9]{1,9})?", fullmatch=True),
    "iptables.masqueradeBit": st.integers(0, 31),
    "logging.flushFrequency": _DURATION | st.integers(0, 10**12),
    "logging.format": st.sampled_from(["", "text", "json"]),
    "logging.options.json.infoBufferSize": st.sampled_from(["0", "4Ki", 0, 512]),
    "logging.options.text.infoBufferSize": st.sampled_from(["0", "1M", 0]),
    "logging.verbosity": st.integers(0, 9),
    "metricsBindAddress": _BIND_ADDRESS,
    "mode": st.sampled_from(["", "iptables", "ipvs", "nftables"]),
    "nftables.masqueradeBit": st.integers(0, 31),
    "nodePortAddresses": st.lists(_CIDR4 | _CIDR6 | st.sampled_from(["primary", "all"]), max_size=3),
    "oomScoreAdj": st.integers(-1000, 1000),
    "portRange": st.sampled_from(["", "1-2", "30000+100"]),
    "showHiddenMetricsForVersion": st.sampled_from(["", "1.36"]),
    "windowsRunAsService": st.just(False),  # noqa: FBT003 - true is rejected
    "configSyncPeriod": _PERIOD,
    **{path: _PERIOD for path in FIELDS if path.endswith(".syncPeriod")},
    **{path: _MIN_PERIOD for path in FIELDS if path.endswith(".minSyncPeriod")},
}
_REQUIRED_BY_A_MODE = ("detectLocal.bridgeInterface", "detectLocal.interfaceNamePrefix")
"""Fields that a value of detectLocalMode requires, so they are always set."""


def _values(path: str) -> st.SearchStrategy[Any]:
    strategy = _FIELD_STRATEGIES.get(path, _KIND_STRATEGIES[FIELDS[path].kind])
    return strategy if path in _REQUIRED_BY_A_MODE else strategy | st.none()


CONFIGURATIONS = st.fixed_dictionaries(
    {path: _values(path) for path in _REQUIRED_BY_A_MODE},
    optional={path: _values(path) for path in FIELDS if path not in _REQUIRED_BY_A_MODE},
)
"""Values by field path; optional fields may be missing or null."""
