"""`lines_of`: the lines of a file of any size and content, a bounded piece at a time."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from sweep.errors import ConfigError

CHUNK_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 20
"""A longer line is cut into pieces of this size: a progress bar without line ends must not fill the memory."""


def open_binary(path: Path) -> BinaryIO:
    """The file opened for reading, unpacked if its name ends in .gz.

    Raises:
        ConfigError: the path does not exist, is a folder, or may not be read.
    """
    try:
        return cast(BinaryIO, gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error


def lines_of(path: Path) -> Iterator[bytes]:
    """Lines without their ends; carriage returns end a line too, as progress bars write them.

    Raises:
        ConfigError: the path cannot be opened, or the file breaks off inside its compression.
    """
    with open_binary(path) as stream:
        try:
            yield from split_lines(stream)
        except (OSError, EOFError, zlib.error) as error:
            raise ConfigError(f"cannot read {path} to its end: {error}") from error


def split_lines(stream: BinaryIO) -> Iterator[bytes]:
    """The lines of a binary stream."""
    rest = b""
    while chunk := stream.read(CHUNK_BYTES):
        text = rest + chunk
        parts = (text.replace(b"\r", b"\n") if b"\r" in chunk else text).split(b"\n")
        rest = parts.pop()
        if len(rest) > MAX_LINE_BYTES:
            parts.append(rest)
            rest = b""
        yield from parts
    if rest:
        yield rest
