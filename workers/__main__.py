"""``python -m workers`` is ``spotgpu``."""

from workers.cli import main

main()
