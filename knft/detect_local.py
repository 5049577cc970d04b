"""DetectLocal: how packets of this node's pods are recognised (docs/behaviour/configuration.md#local-traffic).

The table of options uses it, so this module imports nothing large.
"""

from typing import Literal, get_args

DetectLocal = Literal["ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"]
DETECT_LOCAL_MODES: tuple[DetectLocal, ...] = get_args(DetectLocal)
