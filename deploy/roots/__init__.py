"""Makes root directories of Debian releases, in which packages are built and tests run.

``debootstrap`` makes the smallest one, ``cached`` adds packages and keeps each root directory in a cache, and
``overlay`` gives a writable view of one, so that it stays as it was made.
"""
