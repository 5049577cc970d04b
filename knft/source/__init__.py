"""Sources of objects: decode Kubernetes manifests and check them at the entrance.

Invalid objects are reported with file, object and field, and are not passed on. No tracking, no decisions, no nftables.
"""
