"""Refuses requests that name a forbidden topic, as a broker with ACLs would: TOPIC_AUTHORIZATION_FAILED.

KWSNIFF_FORBIDDEN_TOPICS is a regular expression for whole topic names, e.g. `secret-.*|audit`. A request that
names one such topic is refused as a whole: what it asks of other topics is not done either. Topics that are
named by id only (Fetch from version 13 on, Produce too) are known once an answer told their names; an id that
none has told is let go. Answers are not changed: a client that lists all topics sees that these exist.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from kwsniff import wire
from kwsniff.conversation import refusal
from kwsniff.errors import ConfigError
from kwsniff.hooks import hookimpl
from kwsniff.passing import Close, Passing, Respond
from kwsniff.wire import walk

TOPIC_AUTHORIZATION_FAILED = 29


class TopicFirewall:
    def __init__(self, forbidden: str | None = None) -> None:
        pattern = forbidden or os.environ.get("KWSNIFF_FORBIDDEN_TOPICS")
        if not pattern:
            raise ConfigError(
                "topic_firewall: KWSNIFF_FORBIDDEN_TOPICS is not set; it is a regular expression"
            )
        try:
            self._forbidden = re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"topic_firewall: KWSNIFF_FORBIDDEN_TOPICS: {error}") from error

    @hookimpl
    def request(self, passing: Passing) -> Respond | Close | None:
        found = next((name for name in _topics(passing) if self._forbidden.fullmatch(name)), None)
        if found is None:
            return None
        passing.tags.append("forbidden-topic")
        answer = refusal.answer(passing.frame, TOPIC_AUTHORIZATION_FAILED)
        return Close(f"topic {found} is forbidden") if answer is None else Respond(answer)


def _topics(passing: Passing) -> Iterator[str]:
    """Names of the topics in the request. One that does not decode names none; the broker will refuse it."""
    frame = passing.frame
    message = wire.request_of(frame.api)
    if message is None or frame.version is None or frame.body is None:
        return
    yield from walk.topics(message.name, frame.version, frame.body)
    for topic_id in walk.topic_ids(message.name, frame.version, frame.body):
        if topic_id in passing.topic_names:
            yield passing.topic_names[topic_id][1]


plugin = TopicFirewall
