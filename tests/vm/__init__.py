"""Tests on Debian 12's kernel 6.1, in a virtual machine: kernels before 6.2 handle some packets differently.

``python -m tests.vm`` boots the guest once and runs ``TESTS`` of ``__main__`` in it (``make test-vm``).

The guest has no disk. Its root file system is that of the host, read only, with an overlay in memory. So the tests, the
virtual environment, Python and nft in the guest are the host's, and only the kernel differs.
"""
