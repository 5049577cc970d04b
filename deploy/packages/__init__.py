"""``make packages``: builds knft's packages into ``dist/``, without root's help from the host's own packages.

``distributions`` builds the sdist and the wheel, ``debian`` builds the packages of Debian releases from the sdist in
root directories of them (``deploy.roots``). ``debian/`` has the Debian source trees, ``rpm/`` the spec for Fedora.
Equal inputs give equal files, in any folder and at any time (SOURCE_DATE_EPOCH).
"""
