"""Which messages of QoS 0 a node sends at QoS 1, to learn whether an MQTT broker takes them. Pure."""

from __future__ import annotations

from collections import OrderedDict

TOPICS_TRIED_MAX = 10_000
PAUSE_S, AGAIN_S = 1.0, 60.0  # Between two trials, on average; between two of one topic.
SAVED_MAX = 5  # Trials that follow each other at once after a pause.


class TopicTrials:
    """Which topics the broker lets the node publish, although nothing answers a message of QoS 0.

    About one in a second is tried, and only while no other waits for an answer, because brokers may deliver QoS 0
    messages before earlier ones of QoS 1; to a refused topic all are, so that each of them is counted. Times are those
    of a clock that never goes back.
    """

    def __init__(self) -> None:
        self._tried_s: OrderedDict[str, float] = OrderedDict()  # When a topic was last tried, the latest last.
        self._refused: OrderedDict[str, None] = OrderedDict()
        self._next_s = 0.0  # When a trial is due if none are saved.

    def is_due(self, topic: str, now_s: float, *, is_waiting: bool) -> bool:
        """Return True if a message of QoS 0 is to be sent at QoS 1; ``is_waiting``: others wait for an answer."""
        if topic in self._refused:
            return True
        if is_waiting or now_s < self._next_s or now_s - self._tried_s.get(topic, -AGAIN_S) < AGAIN_S:
            return False
        self._next_s = max(self._next_s, now_s - SAVED_MAX * PAUSE_S) + PAUSE_S
        self._tried_s[topic] = now_s
        self._tried_s.move_to_end(topic)
        if len(self._tried_s) > TOPICS_TRIED_MAX:
            self._tried_s.popitem(last=False)
        return True

    def note(self, topic: str, *, is_refused: bool) -> None:
        """Note the broker's answer."""
        if not is_refused:
            self._refused.pop(topic, None)
            return
        self._refused[topic] = None
        if len(self._refused) > TOPICS_TRIED_MAX:
            self._refused.popitem(last=False)
