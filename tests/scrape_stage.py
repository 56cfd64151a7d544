"""Read the metrics and the readiness of a running stage over HTTP."""

import json
import urllib.request

ANSWER_S_MAX = 30


def scraped(host: str, port: int | None) -> dict[str, float]:
    """Return the stage's samples by name with labels, after asserting that it is ready and without errors."""
    place = f"http://{host}:{port}"
    with urllib.request.urlopen(f"{place}/ready", timeout=ANSWER_S_MAX) as ready:
        answer = json.load(ready)
        assert (answer["is_ready"], answer["errors"]) == (True, [])
    with urllib.request.urlopen(f"{place}/metrics", timeout=ANSWER_S_MAX) as metrics:
        lines = metrics.read().decode().splitlines()
    return {line.split()[0]: float(line.split()[1]) for line in lines if line[0] != "#"}
