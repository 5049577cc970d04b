"""Decodes and validates Kubernetes objects from manifests, before other packages use them.

Invalid objects are reported with file, object and field, and skipped.
"""
