"""Refuses what kernels before 6.2 refuse."""

from knft.errors import KernelError
from knft.nft.transaction import Transaction


def refuse_as_before_6_2(transaction: Transaction) -> None:
    """Refuse to delete a chain in the transaction that removes the last element that leads to it."""
    if transaction.deleted_chains and transaction.removed:
        msg = "Device or resource busy"
        raise KernelError(msg)
