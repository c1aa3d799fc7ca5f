"""Counts exchanges by API, and says the counts when the proxy stops: how small a plugin can be."""

import sys
from collections import Counter

from kwsniff import wire
from kwsniff.hooks import hookimpl

counts: Counter[str] = Counter()


@hookimpl
def exchanged(passed):
    if passed.exchange.request is not None:
        counts[wire.api_name(passed.exchange.request.api)] += 1


@hookimpl
def stopped():
    for name, count in counts.most_common():
        print(f"{count:8}  {name}", file=sys.stderr)
