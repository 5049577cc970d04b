"""Debian 12's own kernel, 6.1, in a virtual machine, so that real packets show what kernels before 6.2 do differently.

``python -m tests.vm`` boots it once and runs ``TESTS`` of ``__main__`` there, as ``make test-vm`` does.

The machine has no disk of its own: its root file system is this machine's, read only, with a layer in memory on top.
So the tests, the virtual environment, Python and nft in the guest are those of the host, and only the kernel differs.
"""
