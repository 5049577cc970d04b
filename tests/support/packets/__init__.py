"""What sends packets, and checks where they arrive, in tests of several folders and jobs."""
