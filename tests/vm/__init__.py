"""Tests on Debian 12's kernel 6.1, in a virtual machine: kernels before 6.2 handle some packets differently.

``python -m tests.vm`` boots it once and runs ``TESTS`` of ``__main__`` there (``make test-vm``).

The machine has no disk. Its root file system is that of this machine, read only, with an overlay in memory. So the
tests, the virtual environment, Python and nft in the guest are the host's, and only the kernel differs.
"""
