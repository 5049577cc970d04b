"""``make test-image`` builds the container image, twice if its inputs have changed, and runs commands in its files.

bubblewrap runs them like a container: the root file system is read-only, and the only capability is NET_ADMIN.
"""
