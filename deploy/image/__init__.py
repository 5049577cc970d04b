"""Builds the container image as an OCI archive, without a container runtime, a registry, or root.

    locks ──fetch──▶ packages and wheels ──rootfs──▶ root directory ──layer──▶ layer ──oci──▶ archive
                                                          └──sbom──▶ SPDX document

``python -m deploy.image`` builds; ``python -m deploy.image --lock`` renews the locks, which pin each Debian package and
each wheel by its SHA-256. Packages are unpacked, and none of their scripts run, so one architecture can build the image
of another. Equal inputs give an equal digest, in any folder and at any time (SOURCE_DATE_EPOCH).
"""
