from collections.abc import Iterator

from kwsniff.capture._run import Run
from kwsniff.capture.files import PacketReader
from kwsniff.capture.link import LinkDecoder
from kwsniff.capture.tcp import Reassembler
from kwsniff.model import Chunk

class Scanner:
    @property
    def last(self) -> int | None: ...
    def __init__(self, capture: PacketReader) -> None: ...
    def first(self) -> int | None: ...
    def batches(self, links: LinkDecoder, streams: Reassembler) -> Iterator[list[Chunk | Run]]: ...
