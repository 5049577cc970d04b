"""Tests on the kernels of Debian 12 (6.1) and 13 (6.12): kernels before 6.2 handle some packets differently.

``python -m tests.vm`` boots a guest for each kernel and runs ``TESTS`` of ``__main__`` in it (``make test-vm``). Linux
6.1 runs as user-mode Linux, built from Debian's source, or under qemu where that is impossible; 6.12 runs under qemu.

The guest has no disk. Its root file system is that of the host, read only, with an overlay in memory. So the tests, the
virtual environment, Python and nft in the guest are the host's, and only the kernel differs.
"""
