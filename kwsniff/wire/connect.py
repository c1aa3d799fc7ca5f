"""What Kafka Connect's workers put into JoinGroup and SyncGroup (protocolType "connect").

In: nothing. Out: two messages as `schema` has them; each stands behind its own version (int16) on the wire.
They are not among Kafka's message definitions but in the sources of Connect's ConnectProtocol (v0) and
IncrementalCooperativeConnectProtocol (v1, KIP-415; v2, KIP-507).
"""

from __future__ import annotations

from functools import cache

from kwsniff.wire import notation
from kwsniff.wire.schema import Message

_TEXT = """
data ConnectProtocolMetadata v0-2
  Url: string
  ConfigOffset: int64
  Allocation: bytes? v1+ = null

data ConnectProtocolAssignment v0-2
  Error: int16
  Leader: string
  LeaderUrl: string
  ConfigOffset: int64
  Assignment: [ConnectorAssignment]?v1+
  Revoked: [ConnectorAssignment]? v1+
  Delay: int32 v1+

  struct ConnectorAssignment
    Connector: string
    Tasks: [int32]
"""


@cache
def message(name: str) -> Message:
    """ConnectProtocolMetadata or ConnectProtocolAssignment. A task -1 is the connector itself."""
    return {message.name: message for message in notation.parse("connect.py", _TEXT, {})}[name]
