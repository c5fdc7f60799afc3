"""A rule that is switched off says which rule, and why, on the same line."""

import io
import re
import tokenize

from tests.architecture.tree import repository_files, text_of

SWITCHED_OFF = re.compile(r"#\s*(noqa|type:\s*ignore|pyright:\s*(?!strict))")
# A rule in the suppression's own form, then a reason.
NOQA = r"noqa:\s*[A-Z]+[0-9]+(,\s*[A-Z]+[0-9]+)*"
IGNORE = r"(type|pyright):\s*ignore\[[\w, -]+\]"
RELAXED = r"pyright:\s*report\w+=\w+(,\s*report\w+=\w+)*"
WITH_REASON = re.compile(rf"#\s*({NOQA}|{IGNORE}|{RELAXED})\W+\w+")


def comments_of(path: str) -> list[tuple[int, str]]:
    """Line and text of every comment."""
    tokens = tokenize.generate_tokens(io.StringIO(text_of(path)).readline)
    return [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]


def has_reason_before(comments: dict[int, str], line: int) -> bool:
    """Whether the line above is a comment too: a file header gives its reason there."""
    above = comments.get(line - 1, "")
    return bool(above) and (not SWITCHED_OFF.search(above) or has_reason_before(comments, line - 1))


def test_every_suppression_names_its_rule_and_its_reason() -> None:
    bare: list[str] = []
    for path in repository_files():
        if not path.endswith(".py") or not SWITCHED_OFF.search(text_of(path)):
            continue
        comments = dict(comments_of(path))
        for line, comment in comments.items():
            if not SWITCHED_OFF.search(comment) or WITH_REASON.search(comment):
                continue
            if not has_reason_before(comments, line):
                bare.append(f"{path}:{line} {comment}")
    assert bare == []
