"""The supported kinds with the fields that only people read; the daemon does not import them."""

from knft.model import described
from knft.source.decode import KINDS

DESCRIBED_KINDS = {**KINDS, ("discovery.k8s.io/v1", "EndpointSlice"): described.EndpointSlice}
"""By apiVersion and kind, as ``KINDS``."""

LINTED_KINDS = {**DESCRIBED_KINDS, ("v1", "Service"): described.Service}
"""By apiVersion and kind, for ``knft lint``."""
