"""The Kubernetes API behind a narrow port on plain objects."""
