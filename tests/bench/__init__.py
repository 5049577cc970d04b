"""Measures what knft costs, and what kube-proxy's layouts cost in the same run on the same machine.

Each case runs in its own process and network namespace (``case``), and prints records. The parent (``__main__``) writes
them as JSON, a table and a plot. The benchmark only reports, because times depend on the machine; what holds on every
machine is asserted in tests/kernel/test_transactions.py.
"""
