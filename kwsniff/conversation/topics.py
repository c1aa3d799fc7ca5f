"""Topic ids (KIP-516) -> names, learnt from any answer that carries both."""

from __future__ import annotations

from kwsniff import wire
from kwsniff.model import Frame
from kwsniff.wire import walk


class TopicNames(dict[str, tuple[int, str]]):
    """Topic id -> (when it was first told, name). Shared by all connections of an input.

    An id is never reused by Kafka, so the first name stands. Bounded: past `LIMIT` ids nothing is learnt.
    """

    LIMIT = 1_000_000

    def learn(self, response: Frame) -> None:
        message = wire.response_of(response.api)
        if message is None or response.version is None:
            return
        if not walk.teaches_topics(message.name, response.version) or response.body is None:
            return
        for topic_id, name in walk.learned_topics(message.name, response.version, response.body):
            told = self.get(topic_id)
            if (told is None and len(self) < self.LIMIT) or (told is not None and response.end < told[0]):
                self[topic_id] = (response.end, name if told is None else told[1])
