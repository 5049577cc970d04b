"""When to sync: the BoundedFrequencyRunner. It knows nothing of what it runs."""
