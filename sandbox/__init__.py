"""The stage set: the outside world in miniature."""
