# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
"""knft: a Kubernetes Service proxy for nftables; the number of rules hardly depends on the number of Services.

The data path, in the order of the data: ``source`` (manifests) or ``apiserver`` (list and watch) → ``track`` →
``decide`` → ``render`` → ``delta`` → ``kernel``. ``sync`` calls these stages, and ``runner`` limits how often.
``model`` defines the Kubernetes values and ``nft`` the nftables values that the stages exchange.

The process: ``cli`` is the command line, ``configuration`` reads flags and the configuration file, ``app`` starts and
stops the daemon, ``serve`` has the health and metrics servers, ``leftovers`` finds and removes the rules of kube-proxy.
Analysis of rule sets: ``interpret`` computes where packets go, ``comparison`` compares two rule sets, ``present``
prints the results.
"""

__version__ = "0.1.0"
