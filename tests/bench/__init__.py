"""What knft costs, measured beside kube-proxy's layouts in one run on one machine.

Every case runs in a process and a network namespace of its own (``case``) and prints records; the parent (``__main__``)
collects them into JSON, a table and a plot. It reports and never judges by exit status: times belong to a machine, and
what must hold on every machine is counted in tests/kernel/test_transactions.py.
"""
