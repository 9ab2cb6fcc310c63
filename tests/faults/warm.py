"""A process that has loaded what a study needs, and is forked for every run of one: loading takes seconds.

As a program it reads lines of JSON, each the arguments of `pausejax` and a pipe for what it says, and answers
with the number of the process that carries them out.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time


class Warm:
    """The process to be forked; a context."""

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory()
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._folder.cleanup()

    def start(self, arguments):
        """Carries out a command; as a process that can be polled, killed and listened to."""
        pipe = os.path.join(self._folder.name, "said")
        os.mkfifo(pipe)
        print(json.dumps([arguments, pipe]), file=self._process.stdin, flush=True)
        pid = int(self._process.stdout.readline())
        said = open(pipe)  # noqa: SIM115 whoever has started it closes it
        os.unlink(pipe)
        return Forked(pid, said)


class Forked:
    """What `folders.kill` and the like need of a `subprocess.Popen`."""

    def __init__(self, pid, stderr):
        self.pid, self.stderr = pid, stderr

    def poll(self):
        """None while it lives."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return 0
        return None

    def wait(self):
        while self.poll() is None:
            time.sleep(0.005)


def _serve():
    """Forks for every line; a fork ends here, with the arguments that it is to carry out."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    for line in sys.stdin:
        arguments, pipe = json.loads(line)
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)
            os.dup2(0, 1)
            os.dup2(os.open(pipe, os.O_WRONLY), 2)
            return arguments
        print(pid, flush=True)
    return None


if __name__ == "__main__":
    import pausejax.execution.displays
    import pausejax.execution.play
    import pausejax.kinds  # noqa: F401
    from pausejax.commands.main import main

    if (typed := _serve()) is not None:
        sys.argv[1:] = typed
        sys.exit(main())
