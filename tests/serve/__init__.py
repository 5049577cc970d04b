"""What one process serves, over real sockets; rules in a real kernel; time by a clock of the test's own."""
