"""The trial cluster's plan and configuration, as text and without root."""
