"""Tags as Huawei can hold them: keys of 36 characters, values of 43, ten a server.

A launch token has up to 64 characters. What is too long for one value stands in two tags: its end, which no
other launch has, in ``spotgpu-launch``, and its beginning in ``spotgpu-launch-head``. So a search for a token
asks the cloud for its end, and what is found is compared with the whole token.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from domain.contracts.names import TAG_INSTALLATION, TAG_LAUNCH, TAG_POOL

TAG_LAUNCH_HEAD: Final = f"{TAG_LAUNCH}-head"
MAX_TAGS: Final = 10
MAX_KEY_CHARS: Final = 36
MAX_VALUE_CHARS: Final = 43
FORBIDDEN_IN_KEYS: Final = re.compile(r"[\x00-\x1f=*<>\\,|/]")
FORBIDDEN_IN_VALUES: Final = re.compile(r"[\x00-\x1f=*<>\\,|]")
MOST_TELLING: Final = (TAG_LAUNCH, TAG_POOL, TAG_INSTALLATION)


def stored(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags as they are kept at the cloud."""
    token = tags.get(TAG_LAUNCH, "")
    if len(token) <= MAX_VALUE_CHARS:
        return dict(tags)
    return {**tags, TAG_LAUNCH: token[-MAX_VALUE_CHARS:], TAG_LAUNCH_HEAD: token[:-MAX_VALUE_CHARS]}


def given(texts: Sequence[str]) -> dict[str, str]:
    """Tags as they were given, from the ``key=value`` texts of an answer."""
    tags = {key: value for key, _, value in (text.partition("=") for text in texts)}
    head = tags.pop(TAG_LAUNCH_HEAD, "")
    if head:
        tags[TAG_LAUNCH] = head + tags.get(TAG_LAUNCH, "")
    return tags


def search_text(tags: Mapping[str, str]) -> str:
    """The one tag that a search asks the cloud for, as ``key=value``; the others are compared here.

    The list's filter takes one tag: how it would join several is not documented.
    """
    kept = stored(tags)
    key = next((key for key in (*MOST_TELLING, *sorted(kept)) if key in kept), "")
    return f"{key}={kept[key]}" if key else ""


def flaw(tags: Mapping[str, str]) -> str:
    """Why tags cannot be kept: what, where and what to do; empty when they can."""
    kept = stored(tags)
    if len(kept) > MAX_TAGS:
        return (
            f"{len(kept)} tags, at most {MAX_TAGS} fit a server of Huawei, "
            f"{len(kept) - MAX_TAGS} fewer are needed: shorten tags of the node class"
        )
    for key, value in kept.items():
        if not 0 < len(key) <= MAX_KEY_CHARS or FORBIDDEN_IN_KEYS.search(key):
            return _advice(f"tag key {key!r}", f"1 to {MAX_KEY_CHARS} characters, none of =*<>\\,|/")
        if len(value) > MAX_VALUE_CHARS or FORBIDDEN_IN_VALUES.search(value):
            return _advice(f"value of tag {key}", f"at most {MAX_VALUE_CHARS} characters, none of =*<>\\,|")
    return ""


def _advice(what: str, allowed: str) -> str:
    return f"the {what} does not fit Huawei, which allows {allowed}: change tags of the node class"
