"""What ends a process with one clear line instead of a traceback."""


class ConfigurationError(Exception):
    """Something that the person who starts the process must change or start; one line that says what."""
