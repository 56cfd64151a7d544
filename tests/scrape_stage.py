"""What a running stage tells Prometheus and those who ask whether it is ready."""

import json
import urllib.request

ANSWER_S_MAX = 30


def scraped(host: str, port: int | None) -> dict[str, float]:
    """The stage's samples by name and labels; it must be ready and without a fault."""
    place = f"http://{host}:{port}"
    with urllib.request.urlopen(f"{place}/ready", timeout=ANSWER_S_MAX) as ready:
        assert json.load(ready) == {"is_ready": True, "faults": []}
    with urllib.request.urlopen(f"{place}/metrics", timeout=ANSWER_S_MAX) as metrics:
        lines = metrics.read().decode().splitlines()
    return {line.split()[0]: float(line.split()[1]) for line in lines if line[0] != "#"}
