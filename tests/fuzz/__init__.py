"""Fuzzing of all that lies between the bytes of a file and the transaction: `make fuzz`, and briefly in every run."""
