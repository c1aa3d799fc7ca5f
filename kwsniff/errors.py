"""What can go wrong, by whose fault it is.

Theirs: bytes on the wire or in a capture that are not what they should be. `DecodeError` is raised inside
the codec and becomes a `kwsniff.model.Fault` (data) before it leaves the core. Ours: `EncodeError`, a dict
that cannot be written as the message it claims to be. The user's: `ConfigError`, a wrong option, filter or
file; the command line prints it as one line, exit status 2.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any


class Reason(StrEnum):
    """The fault codes of the JSON log (`kwsniff.fault.reason`)."""

    # capture files and packets
    CAPTURE_TRUNCATED = "capture_truncated"
    CAPTURE_CORRUPT = "capture_corrupt"
    # byte streams
    LOST_BYTES = "lost_bytes"
    NOT_KAFKA = "not_kafka"
    SIZE_INVALID = "size_invalid"
    FRAME_INCOMPLETE = "frame_incomplete"
    FRAME_TOO_LARGE = "frame_too_large"
    # headers
    HEADER_INVALID = "header_invalid"
    UNKNOWN_API = "unknown_api"
    UNKNOWN_VERSION = "unknown_version"
    # bodies
    BODY_TRUNCATED = "body_truncated"
    LENGTH_INVALID = "length_invalid"
    COUNT_INVALID = "count_invalid"
    NULL_INVALID = "null_invalid"
    VARINT_INVALID = "varint_invalid"
    TAG_INVALID = "tag_invalid"
    TRAILING_BYTES = "trailing_bytes"
    # records
    RECORDS_CORRUPT = "records_corrupt"
    CRC_MISMATCH = "crc_mismatch"
    DECOMPRESSION_FAILED = "decompression_failed"
    DECOMPRESSION_LIMIT = "decompression_limit"
    NESTING_LIMIT = "nesting_limit"
    # the proxy
    PLUGIN_FAILED = "plugin_failed"
    LOG_SHED = "log_shed"


class KwsniffError(Exception):
    """The base of every exception that kwsniff raises on purpose."""


class DecodeError(KwsniffError, ValueError):
    """Bytes that are not the message they claim to be (their error).

    path: the field, e.g. ``topics[3].partitions[0].records``; "" when no field is to blame.
    offset: bytes from the start of the data that was given to the decoder.
    partial: what was decoded before the error (the whole body for `Reason.TRAILING_BYTES`), or None.
    """

    def __init__(
        self, reason: Reason, message: str, *, path: str = "", offset: int = 0, partial: Any = None
    ) -> None:
        where = f" at {path}" if path else ""
        super().__init__(f"{message}{where} (byte {offset})")
        self.reason = reason
        self.message = message
        self.path = path
        self.offset = offset
        self.partial = partial


class EncodeError(KwsniffError, ValueError):
    """A body that cannot be written as this message and version (our error, or a rule's)."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.message = message
        self.path = path


class UnknownMessage(KwsniffError, ValueError):
    """A message name or version that no Kafka release has."""


class ConfigError(KwsniffError):
    """A mistake of the user's: option, filter, file. The text is one line and names the way out."""


class PluginFailed(KwsniffError):
    """A plugin without which the proxy is not to run has failed: it stops, exit status 1. One line."""


class CaptureError(KwsniffError):
    """A capture that cannot be read any further.

    file: its name as given; packet: 1-based number of the packet at (or before) which reading stopped,
    0 when there was none; offset: bytes into the (uncompressed) file. A broken *header* is the subclass
    `NotACapture`: nothing of the file can be read.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str,
        packet: int = 0,
        offset: int = 0,
        reason: Reason = Reason.CAPTURE_CORRUPT,
    ) -> None:
        super().__init__(f"{file}: {message} (packet {packet}, byte {offset})")
        self.message = message
        self.file = file
        self.packet = packet
        self.offset = offset
        self.reason = reason


class NotACapture(CaptureError):
    """An empty file, or one whose first bytes are no capture format that we read."""
