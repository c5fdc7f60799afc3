"""The shared vocabulary. Types may travel as payloads: additive changes only, unknown fields ignored."""
