"""Keeps secrets out of messages and records: `redacted` for a URL, `scrubbed` for any text, `without_secrets` for
a configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = "***"

SECRET_QUERY = re.compile(r"pass|pwd|secret|token|key", re.IGNORECASE)
"""Query parameters of a URL that are hidden. Ours: rather one too many."""

SECRET_SETTING = re.compile(
    r"(^|[._])(password|passwd|secret|credentials?|api_?key|access_?key|(auth_?|hf_)?token)$", re.I
)
"""Names of settings that are hidden. Ours: `tokenizer` and `max_tokens` are none."""


URL_PASSWORD = re.compile(r"(\w[\w+.-]*://[^\s:/@]*:)[^\s/@]+@")
SECRET_VALUE = re.compile(
    r"((?:\b|[._])(?:password|passwd|secret|credentials?|api_?key|access_?key|(?:auth_?|hf_)?token)=)[^\s&\"',\]}]+",
    re.I,
)
"""A password after a user's name, and what follows `password=` and its like on a command line or in a query."""


def redacted(url: str) -> str:
    """The URL with its password and secret-looking query values as `***`; only its scheme if it cannot be parsed.

    A plain word or path, which holds no password, stays as it is.
    """
    import sqlalchemy as sa

    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        if re.fullmatch(r"[\w./-]*", url):
            return url
        scheme = re.match(r"[\w+]+(?=://)", url)
        return f"{scheme.group()}://{HIDDEN}" if scheme else HIDDEN
    shown = {k: HIDDEN if SECRET_QUERY.search(k) else v for k, v in parsed.query.items()}
    return parsed.set(query=shown).render_as_string(hide_password=True).replace("%2A%2A%2A", HIDDEN)


def scrubbed(text: str) -> str:
    """Any text with passwords inside URLs and values of secret-looking settings as `***`."""
    text = URL_PASSWORD.sub(rf"\g<1>{HIDDEN}@", text)
    return SECRET_VALUE.sub(rf"\g<1>{HIDDEN}", text)


def without_secrets(content: object) -> object:
    """The plain JSON content with secret settings and passwords inside URLs as `***`."""
    if isinstance(content, Mapping):
        return {k: HIDDEN if v and SECRET_SETTING.search(str(k)) else without_secrets(v) for k, v in content.items()}
    if isinstance(content, list | tuple):
        return [without_secrets(entry) for entry in content]
    if isinstance(content, str) and "://" in content and re.search(r"@|[?&]", content):
        return redacted(content)
    return content
