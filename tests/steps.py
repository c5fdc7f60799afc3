"""How a test says what is to do of a cloud that is being added."""

GUIDE = "docs/adding-a-provider.md"


def to_do(step: int, what: str) -> str:
    """One line that names the step of the page."""
    return f"TO DO, step {step} of {GUIDE}: {what}"
