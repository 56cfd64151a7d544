"""The names of subscriptions that agents carry: ``AGENT.CLIENT.NUMBER``, from the second stay on with ``~STAY``."""


def client_of(subscription: str) -> str:
    """Return the client of a subscription: all before the last dot of its name without stay, else that name."""
    name = subscription.partition("~")[0]
    return name.rpartition(".")[0] or name
