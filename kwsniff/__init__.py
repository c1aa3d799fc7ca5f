"""kwsniff: what Kafka clients and brokers say to each other, seen on the wire.

The stable API is `read` here and the functions of `kwsniff.wire`; everything else is private.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kwsniff.model import Exchange, Fault, Session

__all__ = ["read"]


def read(
    *paths: str,
    filter: str | None = None,
    records: bool = False,
    port: int | tuple[int, ...] | None = None,
    body: bool = True,
    max_frame: int = 100 * 1024 * 1024,
) -> Iterator[Exchange | Fault | Session]:
    """What the captures tell, in order of time: exchanges, faults, and each connection when it ends.

    paths: pcap or pcapng files, also .gz and .zst; "-" is stdin. filter: a CEL expression over the fields of
    the JSON line; exchanges and faults for which it is not true are left out. records: records fields of
    bodies are lists of batches with their records instead of bytes. port: broker ports taken for Kafka
    whatever they carry. body=False: bodies are None. max_frame: bytes; a larger frame is a fault.

    Raises kwsniff.errors.ConfigError for a wrong filter at once, and for files that cannot be read after the
    others have been.
    """
    from kwsniff import reader

    ports = (port,) if isinstance(port, int) else port or ()
    options = reader.ReadOptions(port=ports, max_frame=max_frame)
    return reader.read(paths, options, filter=filter, records=records, body=body)
