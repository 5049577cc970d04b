"""The types of the options table. ``knft --help`` loads this module, so it imports nothing large."""

from copy import copy
from enum import Enum
from typing import Any, NamedTuple


class Kind(Enum):
    """The type of an option's value, in a file and as a flag; the text is used in messages."""

    BOOL = "true or false"
    INTEGER = "a whole number"
    FLOAT = "a number"
    STRING = "text"
    DURATION = "a duration such as 30s or 1h30m"
    LIST = "a list of texts"
    FEATURE_GATES = "a mapping of names to true or false"
    VMODULE = "a list of file patterns and levels"
    VERSION = "true, false or raw"


_ZEROS: dict[Kind, Any] = {
    Kind.BOOL: False,
    Kind.INTEGER: 0,
    Kind.FLOAT: 0.0,
    Kind.DURATION: "0s",
    Kind.LIST: [],
    Kind.FEATURE_GATES: {},
    Kind.VMODULE: [],
}


class Support(Enum):
    """What knft does with an option that is set; the value is the word in docs/configuration.md."""

    SUPPORTED = "supported"
    IGNORED = "ignored"
    """It has no effect in knft. Setting it gives a warning."""
    REJECTED = "rejected"
    """Setting it is an error."""


class Option(NamedTuple):
    """A field of KubeProxyConfiguration with its flags, or a field or flags alone.

    ``description`` says what the option does, or why it is ignored or rejected; --help, warnings and
    docs/configuration.md show it.
    """

    field: str
    flags: tuple[str, ...]
    kind: Kind
    support: Support
    description: str
    default_if_not_zero: Any = None
    """The default; None if it is the zero value of the kind."""
    is_zero_valid: bool = False
    """Whether zero is a value. kube-proxy replaces zero in other fields with the default, as if it were not set."""
    modes: tuple[str, ...] = ()
    """The modes of kube-proxy that read the field; () if all do."""
    applies_with_file: bool = False
    """Whether the flag applies with --config; kube-proxy ignores the others (docs/behaviour/configuration.md#flags)."""
    is_knft_only: bool = False
    """Whether kube-proxy does not have the flag."""
    values_without_warning: tuple[Any, ...] = ()
    """Values other than the default that give no warning, since knft behaves as these values require."""
    value_range: tuple[int, int] | None = None
    metavar: str = ""
    choices: tuple[str, ...] = ()
    """The values that shells propose for the flag; other values may be valid too."""
    field_note: str = ""
    """A sentence about the field that only docs/configuration.md shows."""

    @property
    def default(self) -> Any:  # noqa: ANN401 - a value of the option's kind
        """The value of an option that is not set."""
        return copy(_ZEROS.get(self.kind, "") if self.default_if_not_zero is None else self.default_if_not_zero)

    @property
    def flag(self) -> str:
        """The first long flag, which messages name; "" without one."""
        return next((flag for flag in self.flags if flag.startswith("--")), "")


INT32_RANGE = (-(1 << 31), (1 << 31) - 1)
SECTION_BY_MODE = {"": "iptables", "iptables": "iptables", "ipvs": "ipvs", "nftables": "nftables"}
"""The section that holds the sync periods of a mode; kube-proxy's default mode, "", is iptables.

See docs/behaviour/configuration.md#file.
"""
