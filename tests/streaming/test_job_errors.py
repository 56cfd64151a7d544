"""The sentence with which the streaming job ends names the cause, in texts that Spark 4.0 and Python have printed.

The files hold errors as they were raised, with those of their causes below; stacks are shortened, but for the frames
that have "Error" in their names.
"""

from pathlib import Path

import pytest

from regraft.streaming.job_errors import EXIT_FAILED, explained, root_cause
from regraft.streaming.streaming_settings import StreamingSettings

CAPTURED = Path(__file__).parent / "captured_errors"
SETTINGS = StreamingSettings("127.0.0.1:9", Path("unused"))
CAUSES = {
    "unknown_class": "ClassNotFoundException: com.example.NoSuchManager",
    "bad_certificate": "InvalidConfigurationException: No matching CERTIFICATE entries in PEM file",
    "kafka_away": "TimeoutException: Timed out waiting for a node assignment. Call: listNodes",
    "offsets_corrupt": "SparkIllegalStateException: [MALFORMED_LOG_FILE] Log file was malformed: failed to read",
    "state_corrupt": "SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.",
    "foreach_batch": "KeyError: 'no such window'",
    "python_worker": "ValueError: the state row of b01 is broken",
    "worker_killed": "SparkException: Python worker exited unexpectedly (crashed).",
}


@pytest.mark.parametrize("name", sorted(CAUSES))
def test_the_cause_is_named_not_the_last_frame_that_has_error_in_its_name(name: str) -> None:
    """An operator can act on the first cause; wrappers and frames of the stack say nothing."""
    found = root_cause((CAPTURED / f"{name}.txt").read_text())
    assert found.startswith(CAUSES[name])
    assert "\n" not in found


def test_every_captured_error_has_an_expected_cause() -> None:
    """A new kind of error is a new file and a new line above."""
    assert {file.stem for file in CAPTURED.iterdir()} == set(CAUSES)


def test_causes_that_pyspark_keeps_but_does_not_print_are_read() -> None:
    """The text of a query's error ends with a plan; its causes are separate exceptions."""
    first, second, query = (ValueError(text) for text in (
        "org.apache.kafka.common.errors.InvalidConfigurationException: No matching CERTIFICATE entries in PEM file",
        "org.apache.kafka.common.KafkaException: Failed to create new NetworkClient",
        "[STREAM_FAILED] Query [id] terminated with exception: Failed to create new KafkaAdminClient SQLSTATE: XXKST",
    ))  # fmt: skip
    second._cause, query._cause = first, second  # type: ignore[attr-defined]
    error = explained(query, SETTINGS)
    assert str(error) == f"the streaming query failed: {CAUSES['bad_certificate']}"
    assert error.exit_code == EXIT_FAILED


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "for an unknown reason"),
        ("\n\tat org.x.Y$.withInternalError(Y.scala:1)", "for an unknown reason"),
        ("[STREAM_FAILED] Query terminated with exception: so it was SQLSTATE: XXKST\nplan", "so it was"),
        ("something happened\nelse", "something happened"),
        ("Caused by: a.B$CException: why\nCaused by: java.io.EOFException", "B$CException: why"),
    ],
)
def test_texts_without_a_named_cause_give_their_best_line(text: str, cause: str) -> None:
    """A frame is never a reason."""
    assert root_cause(text) == cause
