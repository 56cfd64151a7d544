"""Which copy of a message counts while a client moves between two brokers of one overlay. Part of two recipes."""

HEADER = "Regraft-Carried-regraft"  # Its end is the overlay's namespace (kafka.namespace).


class Copies:
    """A marker published at each of the two brokers separates what the old one delivers from what the next one does.

    The overlay keeps the order of what a broker publishes, and delivers along a tree. So what the old broker delivers
    before its own marker comes before that marker at the next broker, too.
    """

    def __init__(self, old: str, following: str) -> None:
        self.old, self.following = old, following
        self.passed = set[tuple[str, str]]()  # Where a marker has come, and where it was published.
        self.seen = set[tuple[str, str]]()

    def is_new(self, at: str, stamp: str | None) -> bool:
        """Return True if this copy is to be handled; a message without a stamp was published where it is."""
        number, _, _, publisher, home, *_ = (stamp or f"- - - - {at}").split(" ")
        if home in (self.old, self.following):
            return ((at, home) in self.passed) == (at == self.following)
        if at == self.following:
            return (publisher, number) not in self.seen
        self.seen.add((publisher, number))
        return True
