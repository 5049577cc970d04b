"""What installs knft: manifests and the container image."""
