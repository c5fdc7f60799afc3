"""Judgements as functions from values to values; ``now`` is always an argument."""
