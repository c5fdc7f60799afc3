"""Memory and time: waiting, ordering, remembering. Deterministic."""
