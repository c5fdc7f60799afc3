"""Lays the files of a new cloud: ``python -m sandbox.skeleton NAME``, or ``make new-provider NAME=name``.

What is laid passes lint, import contracts and types, and fails the conformance suite with what is to do. The
templates are in ``docs/provider-template``; ``docs/adding-a-provider.md`` walks through the rest.
"""

import keyword
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
TEMPLATES: Final = "docs/provider-template"
NAME: Final = re.compile(r"[a-z][a-z0-9]{1,15}")
# A node class says `provider: NAME`, and YAML reads these as something else than text.
YAML_WORDS: Final = frozenset({"false", "no", "null", "off", "on", "true", "yes"})

NEXT_STEP: Final = (
    ".venv/bin/pytest -x -k {name} tests/activities/providers/test_steps.py"
    " tests/activities/providers/test_conformance.py"
)
"""What shows the next thing to do, from the repository's root."""

OWN_IMPORT: Final = re.compile(r"from (activities|domain|sandbox|tests)\.")

FILES: Final[Mapping[str, str]] = {
    "adapter.py.txt": "activities/providers/{name}.py",
    "errors.py.txt": "activities/providers/{name}_errors.py",
    "simulator.py.txt": "sandbox/clouds/{name}.py",
    "case.py.txt": "tests/activities/providers/{name}_case.py",
}
"""Template to the file that it becomes."""


class SkeletonError(Exception):
    """Nothing was laid; the text says why and what to do."""


@dataclass(frozen=True)
class Entry:
    """One line that the repository needs to know the cloud.

    Attributes:
        path: The file.
        anchor: A text that stands in it exactly once, and still does when the line is entered: the next cloud
            is entered at the same place.
        text: What takes the anchor's place; ``{anchor}`` stands for it.
    """

    path: str
    anchor: str
    text: str


ENTRIES: Final = (
    Entry("domain/contracts/offers.py", '    AWS = "aws"\n', '{anchor}    {upper} = "{name}"\n'),
    Entry(
        "domain/contracts/provider_ids.py",
        "        case _:\n            assert_never(provider)\n",
        "        case ProviderName.{upper}:\n"
        '            raise NotImplementedError("TO DO, step 2: how Nodes of {name} name their machine")\n'
        "{anchor}",
    ),
    Entry(
        "domain/contracts/catalogue.py",
        "    ProviderName.AWS: _rows(ProviderName.AWS, _AWS),\n",
        "{anchor}    ProviderName.{upper}: (),  # TO DO, step 2: its GPU types\n",
    ),
    Entry("pyproject.toml", '"instrumented |', "{anchor} {name} |"),
    Entry("pyproject.toml", " | aliyun_errors", " | {name}_errors{anchor}"),
    Entry("pyproject.toml", 'modules = ["sandbox.clouds.aliyun"', '{anchor}, "sandbox.clouds.{name}"'),
    Entry(
        "pyproject.toml",
        '    "activities.providers.tencent", "activities.providers.aliyun", "activities.providers.aws",\n',
        '{anchor}    "activities.providers.{name}",\n',
    ),
)


def lay(name: str, root: Path = ROOT) -> list[str]:
    """Write the files and the entries of a new cloud; returns their paths.

    Args:
        name: 2 to 16 lower-case letters and digits, for example ``volcano``.
        root: The repository.

    Raises:
        SkeletonError: the name is no good or taken, or a file is not as it was expected. Nothing was written.
    """
    _check_name(name)
    _check_room(name, root)
    laid = {path.format(name=name): _filled(root, template, name) for template, path in FILES.items()}
    changed = _entered(root, name)
    for path, text in {**laid, **changed}.items():
        (root / path).write_text(text)
    return [*laid, *changed]


def _check_name(name: str) -> None:
    """Refuse what is no name of a module, an enum's member and a value of YAML at once."""
    if not NAME.fullmatch(name):
        raise SkeletonError(f"NAME={name!r}: 2 to 16 lower-case letters and digits, a letter first")
    if any(map(keyword.iskeyword, (name, name.capitalize()))) or keyword.issoftkeyword(name):
        raise SkeletonError(f"NAME={name!r} is a word of Python: choose another name")
    if name in YAML_WORDS:
        raise SkeletonError(
            f"NAME={name!r} is no text in YAML, where node classes say it: choose another name"
        )
    if name in sys.stdlib_module_names:
        raise SkeletonError(f"NAME={name!r} is a module of Python: choose another name")


def _check_room(name: str, root: Path) -> None:
    """Refuse a name that a package has, or that a module beside the new ones has or begins with."""
    folders = (root, *(root / Path(path).parent for path in FILES.values()))
    found = (path for folder in folders for form in ("", ".py", "_*.py") for path in folder.glob(name + form))
    taken = next(found, None)
    if taken is not None:
        raise SkeletonError(f"{taken.relative_to(root)} is there already: choose another name")


def _filled(root: Path, template: str, name: str) -> str:
    text = (root / TEMPLATES / template).read_text()
    words = {"name": name, "Name": name.capitalize(), "NAME": name.upper(), "Title": name.capitalize()}
    return _in_order(Template(text).substitute(words))


def _in_order(text: str) -> str:
    """Our imports in the linter's order, which depends on the name."""
    imports = [line for line in text.splitlines(keepends=True) if OWN_IMPORT.match(line)]
    ordered = iter(sorted(imports, key=lambda line: line.split()[1]))
    lines = text.splitlines(keepends=True)
    return "".join(next(ordered) if OWN_IMPORT.match(line) else line for line in lines)


def _entered(root: Path, name: str) -> dict[str, str]:
    changed: dict[str, str] = {}
    for entry in ENTRIES:
        text = changed.get(entry.path) or (root / entry.path).read_text()
        if text.count(entry.anchor) != 1:
            raise SkeletonError(f"{entry.path} has no single {entry.anchor.strip()!r}: enter {name} by hand")
        if entry.text.format(anchor="", name=name, upper=name.upper()) in text:
            raise SkeletonError(f"{entry.path} knows {name} already: take that out first")
        made = entry.text.format(anchor=entry.anchor, name=name, upper=name.upper())
        changed[entry.path] = text.replace(entry.anchor, made)
    return changed


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: make new-provider NAME=name\n")
        return 2
    try:
        paths = lay(arguments[0])
    except SkeletonError as error:
        sys.stderr.write(f"new-provider: {error}\n")
        return 1
    lines = "\n".join(f"  {path}" for path in paths)
    sys.stdout.write(
        f"laid:\n{lines}\nnext: make crds, then docs/adding-a-provider.md; what fails first is next to do:\n"
        f"  {NEXT_STEP.format(name=arguments[0])}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
