"""``make packages``: builds knft's packages into ``dist/``, as root, in root directories of each release.

``distributions`` builds the sdist and the wheel, ``debian`` builds the packages of Debian releases from the sdist in
their root directories (``deploy.roots``). ``debian/`` has the Debian source trees, ``rpm/`` the spec for Fedora.
Equal inputs give equal files, in any folder and at any time (SOURCE_DATE_EPOCH).
"""
