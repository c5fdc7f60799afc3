"""The shared vocabulary. Every type here may travel as a payload: additive changes only, unknown fields ignored."""
