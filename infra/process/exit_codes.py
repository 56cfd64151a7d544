"""The exit codes of the command line and its stages, the same for all: what each means, in one place.

The streaming job has one more for its supervisor (:mod:`streaming.job_errors`).
"""

EXIT_OK, EXIT_FAILED, EXIT_CALL, EXIT_INTERRUPTED, EXIT_TERMINATED = 0, 1, 2, 130, 143

MEANINGS = {
    EXIT_OK: "success; `status`: healthy; `doctor`: nothing is missing",
    EXIT_FAILED: "failure: a server does not answer, an order is refused, a file or a result is not what it should be",
    EXIT_CALL: "wrong usage or settings, such as the name of something that does not exist; nothing was changed",
    EXIT_INTERRUPTED: "interrupted by Ctrl-C before it had a result; commands that run until Ctrl-C exit with 0",
    EXIT_TERMINATED: "terminated by SIGTERM before it had a result; commands that run until SIGTERM exit with 0",
}
