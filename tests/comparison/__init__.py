"""What is in force on a machine, compared and traced: in network namespaces, with the real programs."""
