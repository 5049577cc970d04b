"""The words that the table of settings is written in. --help reads it: nothing heavy is imported."""

from copy import copy
from enum import Enum
from typing import Any, NamedTuple


class Kind(Enum):
    """What a setting's value is: in a file, and as a flag."""

    BOOL = "true or false"
    WHOLE = "a whole number"
    NUMBER = "a number"
    TEXT = "text"
    DURATION = "a duration such as 30s or 1h30m"
    LIST = "a list of texts"
    GATES = "a mapping of names to true or false"
    VMODULE = "a list of file patterns and levels"
    VERSION = "true, false or raw"


_ZEROS: dict[Kind, Any] = {
    Kind.BOOL: False,
    Kind.WHOLE: 0,
    Kind.NUMBER: 0.0,
    Kind.DURATION: "0s",
    Kind.LIST: [],
    Kind.GATES: {},
    Kind.VMODULE: [],
}


class Verdict(Enum):
    """What becomes of a setting that somebody has set."""

    HONOURED = "honoured"
    IDLE = "accepted"
    """It is taken with a warning: it means nothing here, and nothing is lost by it."""
    REFUSED = "refused"


class Row(NamedTuple):
    """One setting: a field of KubeProxyConfiguration, the flags that mean the same, or either alone.

    ``note`` says what it does, or why it means nothing, or why it is refused; --help and the README show it.
    """

    field: str
    flags: tuple[str, ...]
    kind: Kind
    verdict: Verdict
    note: str
    preset: Any = None
    """The default, where it is not the kind's zero."""
    keeps_zero: bool = False
    """Whether 0 means 0; in all other fields Go cannot tell it from nothing, and kube-proxy takes the default."""
    modes: tuple[str, ...] = ()
    """The modes whose section this is; () where every mode has it."""
    beside_file: bool = False
    """Whether the flag counts beside --config; all others are then ignored (I.3)."""
    own: bool = False
    """Whether the flag is knft's own, so that no command line of kube-proxy has it."""
    quiet: tuple[Any, ...] = ()
    """Values beside the default that need no warning, as knft does the same."""
    bounds: tuple[int, int] | None = None
    metavar: str = ""
    more: str = ""
    """What the README says of the field beside the note."""

    @property
    def default(self) -> Any:  # noqa: ANN401 - of the row's kind
        """What holds where nobody says anything."""
        return copy(_ZEROS.get(self.kind, "") if self.preset is None else self.preset)

    @property
    def flag(self) -> str:
        """The flag as messages name it; "" where there is none."""
        return next((flag for flag in self.flags if flag.startswith("--")), "")


INT32 = (-(1 << 31), (1 << 31) - 1)
NAMES_OF_SECTIONS = {"": "iptables", "iptables": "iptables", "ipvs": "ipvs", "nftables": "nftables"}
"""The section of a file that each mode reads its periods from (I.1); kube-proxy without a mode is in mode iptables."""
