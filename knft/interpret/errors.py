"""What is no error of the capture: an option that iptables takes and this package does not interpret."""


class NotInterpretedError(Exception):
    """An option, or a value of one, that is not interpreted; it becomes ``Unknown``, and is seen nowhere else."""
