"""A real Kubernetes control plane in one run folder: built once, started as child processes, kept by kwok."""
