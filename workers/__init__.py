"""The power switch: processes, wiring, settings, command line."""
