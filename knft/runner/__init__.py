"""The BoundedFrequencyRunner decides when to sync. It does not know what it runs."""
