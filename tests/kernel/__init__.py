"""Transactions on a real kernel: what is sent, what is held, and that it is listed again."""
