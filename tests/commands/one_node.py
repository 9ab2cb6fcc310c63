"""A real SLURM with one node, all of it on this machine's loopback; nothing of it outlives its context."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue", "scancel")
NODE = "n1"
_CPUS, _MEGABYTES = 8, 16_000
_PATIENCE = 60

# Programs speak to the loopback alone. The node has more CPUs than the machine: jobs run side by side.
_SETTINGS = """
ClusterName=pausejax
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/builtin
SlurmdParameters=config_overrides
ReturnToService=2
JobRequeue=1
KillWait=30
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/jobs
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={slurmd} CPUs={cpus} RealMemory={memory}
PartitionName=all Nodes={node} Default=YES MaxTime=INFINITE State=UP
"""


def missing():
    """Why there can be no SLURM here; "": there can."""
    absent = [name for name in PROGRAMS if not shutil.which(name, path=_path())]
    if absent:
        return f"{', '.join(absent)}: not here; apt-get install slurm-wlm munge"
    return "" if os.getuid() == 0 else "SLURM's daemon starts jobs as root alone"


def _path():
    return os.pathsep.join([os.environ["PATH"], "/usr/sbin"])


class Slurm:
    """The cluster; a context.

    Args:
      folder: where everything of it lies; a short path, as sockets lie in it.
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH"))},
            "PATH": _path(),
            "SLURM_CONF": str(self.folder / "slurm.conf"),
        }
        self._daemons = []

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self):
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(128))
        ctld, slurmd = _free_ports(2)
        host = socket.gethostname().partition(".")[0]
        text = _SETTINGS.format(
            host=host,
            folder=self.folder,
            ctld=ctld,
            slurmd=slurmd,
            node=NODE,
            cpus=_CPUS,
            memory=_MEGABYTES,
        )
        (self.folder / "slurm.conf").write_text(text)
        # Anybody may write into the folders above, as into /tmp: --force makes that a warning.
        places = {
            "socket": "socket",
            "key-file": "key",
            "pid-file": "pid",
            "log-file": "log",
            "seed-file": "seed",
        }
        given = [f"--{option}={self.folder}/munge.{name}" for option, name in places.items()]
        self._daemon("munged", "--foreground", "--force", *given)
        self._wait_for((self.folder / "munge.socket").exists)
        self._daemon("slurmctld", "-D", "-i")
        self._daemon("slurmd", "-D", "-N", NODE)
        self._wait_for(lambda: "idle" in self.ask("sinfo", "--noheader", "--format=%T"))

    def _daemon(self, *command):
        log = open(self.folder / f"{command[0]}.said", "wb")  # noqa: SIM115 the daemon's as long as it lives
        with log:
            process = subprocess.Popen(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._daemons.append(process)

    def _wait_for(self, there, patience=_PATIENCE):
        deadline = time.monotonic() + patience
        while not there():
            if time.monotonic() > deadline or any(one.poll() is not None for one in self._daemons):
                raise TimeoutError(self.logs())
            time.sleep(0.1)

    def logs(self):
        """The last lines of what the daemons have said."""
        files = [*self.folder.glob("*.log"), *self.folder.glob("*.said")]
        return "\n".join(f"{path.name}:\n{path.read_text()[-3000:]}" for path in files)

    def ask(self, *command):
        """What a command of SLURM's prints; "" if it fails."""
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=30
        ).stdout

    def jobs(self):
        """The jobs that wait or run, each with its state."""
        lines = self.ask("squeue", "--noheader", "--array", "--format=%i %T").splitlines()
        return dict(line.split() for line in lines if len(line.split()) == 2)

    def ended(self, job):
        """How a job has ended, as (state, exit code); None while it has not."""
        fields = dict(
            word.partition("=")[::2]
            for word in self.ask("scontrol", "show", "job", job, "--oneliner").split()
        )
        state = fields.get("JobState", "")
        return (
            None
            if state in ("", "PENDING", "RUNNING", "COMPLETING", "REQUEUED")
            else (state, fields["ExitCode"])
        )

    def has_steps(self, job):
        """Whether something of a job's last start is left; SLURM fails a job that starts again before."""
        title = f"slurmstepd: [{job.partition('_')[0]}.".encode()
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (place / "cmdline").read_bytes().startswith(title):
                    return True
        return False

    def __exit__(self, *_):
        with contextlib.suppress(Exception):
            self.ask("scancel", "--signal=KILL", "--full", "--state=RUNNING", "--user=root")
            self.ask("scancel", "--user=root")
            self._wait_for(lambda: not self.jobs(), patience=30)
        for process in reversed(self._daemons):
            process.terminate()
        for process in self._daemons:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for number in self._left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

    def _left(self):
        """Processes of the cluster's jobs and daemons: all have its settings in their environment."""
        named = f"SLURM_CONF={self.environment['SLURM_CONF']}".encode()
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if named in (place / "environ").read_bytes().split(b"\0"):
                    yield int(place.name)


def _free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
