"""Measures the cost of knft and of kube-proxy's rule layouts, in the same run on the same machine.

Each case runs in its own process and network namespace (``case``), and prints records. The parent (``__main__``) writes
them as JSON, a table and a plot. The benchmark only reports, because times depend on the machine; properties that hold
on every machine are asserted in tests/sync/test_transactions.py. A *peer* is one of kube-proxy's layouts.
"""
