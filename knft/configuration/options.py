"""The words that the table of settings is written in. --help reads it: nothing heavy is imported."""

from copy import copy
from enum import Enum
from typing import Any, NamedTuple


class Kind(Enum):
    """What a setting's value is: in a file, and as a flag."""

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
    """What becomes of a setting that somebody has set."""

    SUPPORTED = "honoured"
    IGNORED = "accepted"
    """It is taken with a warning: it means nothing here, and nothing is lost by it."""
    REJECTED = "refused"


class Option(NamedTuple):
    """One setting: a field of KubeProxyConfiguration, the flags that mean the same, or either alone.

    ``note`` says what it does, or why it means nothing, or why it is refused; --help and the README show it.
    """

    field: str
    flags: tuple[str, ...]
    kind: Kind
    support: Support
    description: str
    non_zero_default: Any = None
    """The default, where it is not the kind's zero."""
    is_zero_valid: bool = False
    """Whether 0 means 0; in all other fields Go cannot tell it from nothing, and kube-proxy takes the default."""
    modes: tuple[str, ...] = ()
    """The modes whose section this is; () where every mode has it."""
    applies_with_file: bool = False
    """Whether the flag counts beside --config; all others are then ignored (I.3)."""
    is_knft_only: bool = False
    """Whether the flag is knft's own, so that no command line of kube-proxy has it."""
    silent_values: tuple[Any, ...] = ()
    """Values beside the default that need no warning, as knft does the same."""
    value_range: tuple[int, int] | None = None
    metavar: str = ""
    field_note: str = ""
    """What the README says of the field beside the note."""

    @property
    def default(self) -> Any:  # noqa: ANN401 - of the row's kind
        """What holds where nobody says anything."""
        return copy(_ZEROS.get(self.kind, "") if self.non_zero_default is None else self.non_zero_default)

    @property
    def flag(self) -> str:
        """The flag as messages name it; "" where there is none."""
        return next((flag for flag in self.flags if flag.startswith("--")), "")


INT32_RANGE = (-(1 << 31), (1 << 31) - 1)
SECTION_BY_MODE = {"": "iptables", "iptables": "iptables", "ipvs": "ipvs", "nftables": "nftables"}
"""The section of a file that each mode reads its periods from (I.1); kube-proxy without a mode is in mode iptables."""
