"""What the system says has failed, in few words: no numbers, no address twice, no lines of source."""

from __future__ import annotations

import errno
import os
import ssl


def told(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {(error.reason or str(error)).replace('_', ' ').lower()}"
    if isinstance(error, TimeoutError):
        return "it takes too long"
    if error.errno is not None and error.errno in errno.errorcode:  # the text of asyncio repeats the address
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__
