"""Fuzzing from the bytes of a manifest file to the nftables transaction: `make fuzz`, and briefly in every test run."""
