"""What streamed calibration promises, measured on checkpoints of random weights.

    python tools/synthetic_checkpoint.py BIG --gb 14
    python tools/synthetic_checkpoint.py SMALL --gb 1.5 --experts 32 --vocabulary 32768
    python benchmarks/streaming.py memory BIG [--json FILE]   # memory, and the estimate of time
    python benchmarks/streaming.py equal SMALL [--json FILE]  # against the whole model in memory
    python benchmarks/streaming.py kills SMALL [--json FILE]  # ten kills at random moments, each resumed

Each part runs ``sere calibrate`` as a child process on one thread. The peak is the kernel's: the
greatest resident set of the child (``ru_maxrss``), which counts Python and its libraries, all it
allocates, and pages of files that it maps while they are resident. What of it is the process's own
memory and what is pages of files is sampled every 20 ms. Pages of the page cache that the child reads but
does not map are counted nowhere, as any other process could have them. ``memory`` passes if the peak
is under the largest decoder layer plus 2 GB; the estimate passes if the run of all layers, from the
line on memory to the end of the process, is within 25% of it. Exit code 1 if something does not pass.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

GB = 10**9
INDEX = "model.safetensors.index.json"
MEMORY = re.compile(r"memory: at most ([\d.]+) GB")
TIME = re.compile(r"this machine:\s+about ([\d.]+) (seconds|minutes|hours)")
UNITS = {"seconds": 1, "minutes": 60, "hours": 3600}
KILLS = 10


@dataclass
class Run:
    """A finished child process."""

    code: int
    seconds: float
    peak: int
    said: str
    layers_seconds: float
    sampled: dict[str, int] = field(default_factory=dict)


def calibrate(folder: Path, out: Path, options: list[str], kill_after: float | None = None) -> Run:
    """Run ``sere calibrate`` on one thread, or kill it after some seconds."""
    command = [sys.executable, "-m", "sere", "calibrate", str(folder), "--out", str(out), "--threads", "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "COLUMNS": "1000"}
    started = time.monotonic()
    child = subprocess.Popen(  # noqa: S603 - our own command
        [*command, "--device", "cpu", *options],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines: list[str] = []
    begun = [started]

    def listen() -> None:
        for line in child.stderr or ():
            lines.append(line)
            if MEMORY.search(line):
                begun[0] = time.monotonic()

    sampled: dict[str, int] = defaultdict(int)
    over = threading.Event()

    def sample() -> None:
        while not over.wait(0.02):
            try:
                status = Path(f"/proc/{child.pid}/status").read_text(encoding="ascii")
            except OSError:
                return
            for name, value in re.findall(r"(RssAnon|RssFile|RssShmem):\s+(\d+) kB", status):
                sampled[name] = max(sampled[name], int(value) * 1024)

    threads = [threading.Thread(target=each) for each in (listen, sample)]
    for thread in threads:
        thread.start()
    timer = threading.Timer(kill_after or 0, os.kill, (child.pid, signal.SIGKILL))
    if kill_after is not None:
        timer.start()
    _, status, usage = os.wait4(child.pid, 0)
    timer.cancel()
    child.returncode = os.waitstatus_to_exitcode(status)
    ended = time.monotonic()
    over.set()
    for thread in threads:
        thread.join()
    return Run(
        child.returncode,
        ended - started,
        usage.ru_maxrss * 1024,
        "".join(lines),
        ended - begun[0],
        dict(sampled),
    )


def finished(run: Run) -> Run:
    if run.code:
        raise SystemExit(f"sere calibrate failed with {run.code}:\n{run.said}")
    return run


def layers(folder: Path) -> dict[str, int]:
    """Bytes of each decoder layer as stored, by its number, and of the rest as ``outside``."""
    held: dict[str, int] = defaultdict(int)
    for name in sorted(set(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values())):
        with (folder / name).open("rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        for tensor, entry in header.items():
            if tensor != "__metadata__":
                number = re.match(r"model\.layers\.(\d+)\.", tensor)
                start, stop = entry["data_offsets"]
                held[number[1] if number else "outside"] += stop - start
    return held


def memory(folder: Path, args: argparse.Namespace) -> dict[str, object]:
    """Peak of a run against its largest layer, and the run's own estimate of time against the run."""
    held = layers(folder)
    largest = max(size for name, size in held.items() if name != "outside")
    options = ["--sequences", str(args.sequences), "--length", str(args.length)]
    with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
        run = finished(
            calibrate(
                folder, Path(scratch) / "out", [*options, "--batch-sequences", str(args.batch_sequences)]
            )
        )
    said, told = MEMORY.search(run.said), TIME.search(run.said)
    if said is None or told is None:
        raise SystemExit(f"sere calibrate did not say what it takes:\n{run.said}")
    estimate = float(told[1]) * UNITS[told[2]]
    bound = float(said[1]) * GB
    return {
        "checkpoint_gb": sum(held.values()) / GB,
        "decoder_layers": len(held) - 1,
        "sequences": args.sequences,
        "length": args.length,
        "batch_sequences": args.batch_sequences,
        "largest_layer_gb": largest / GB,
        "peak_gb": run.peak / GB,
        "above_largest_layer_gb": (run.peak - largest) / GB,
        "said_at_most_gb": bound / GB,
        "greatest_anonymous_gb": run.sampled.get("RssAnon", 0) / GB,
        "greatest_file_pages_gb": run.sampled.get("RssFile", 0) / GB,
        "seconds": run.seconds,
        "estimate_seconds": estimate,
        "layers_seconds": run.layers_seconds,
        "estimate_over_actual": estimate / run.layers_seconds,
        "said": [
            line.strip().replace(str(folder), "CHECKPOINT")
            for line in run.said.splitlines()
            if MEMORY.search(line) or TIME.search(line)
        ],
        "passed": run.peak <= min(largest + 2 * GB, bound) and abs(estimate / run.layers_seconds - 1) <= 0.25,
    }


def written(out: Path) -> tuple[object, bytes]:
    """All that an artifact's files say, but for the provenance of the run."""
    manifest = json.loads((out / "sere.json").read_text(encoding="utf-8"))
    del manifest["calibration"]["provenance"]
    return manifest, (out / "sere.safetensors").read_bytes()


def equal(folder: Path, args: argparse.Namespace) -> dict[str, object]:
    """Streamed against loaded whole: every byte of the artifact."""
    options = ["--sequences", str(args.sequences), "--length", str(args.length)]
    options += ["--batch-sequences", str(args.batch_sequences)]
    with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
        streamed, whole = Path(scratch) / "streamed", Path(scratch) / "whole"
        one = finished(calibrate(folder, streamed, options))
        other = finished(calibrate(folder, whole, [*options, "--in-memory"]))
        same = written(streamed) == written(whole)
        size = (streamed / "sere.safetensors").stat().st_size
    return {
        "checkpoint_gb": sum(layers(folder).values()) / GB,
        "sequences": args.sequences,
        "length": args.length,
        "artifact_bytes": size,
        "streamed_peak_gb": one.peak / GB,
        "in_memory_peak_gb": other.peak / GB,
        "streamed_seconds": one.seconds,
        "in_memory_seconds": other.seconds,
        "passed": same,
    }


def kills(folder: Path, args: argparse.Namespace) -> dict[str, object]:
    """Kill a run at a random moment and give the same command again, ten times over."""
    options = ["--sequences", str(args.sequences), "--length", str(args.length)]
    options += ["--batch-sequences", str(args.batch_sequences)]
    draw = random.Random(args.seed)
    rounds: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
        whole = Path(scratch) / "whole"
        length = finished(calibrate(folder, whole, options)).seconds
        while len(rounds) < KILLS:
            out = Path(scratch) / f"out{len(rounds)}"
            moment = draw.uniform(0.1, 1.0) * length
            killed = calibrate(folder, out, options, kill_after=moment)
            if killed.code != -signal.SIGKILL:
                continue  # It was faster this time, and had ended.
            work = out.with_name(f".{out.name}.calibration")
            state = work / "state.json"
            done = json.loads(state.read_text(encoding="utf-8"))["layers"] if state.exists() else 0
            finished(calibrate(folder, out, options))
            same = written(out) == written(whole) and not work.exists()
            rounds.append({"killed_after_seconds": moment, "layers_finished": done, "identical": same})
            print(json.dumps(rounds[-1]), flush=True)
    return {
        "checkpoint_gb": sum(layers(folder).values()) / GB,
        "uninterrupted_seconds": length,
        "seed": args.seed,
        "kills": rounds,
        "passed": all(each["identical"] for each in rounds),
    }


PARTS = {"memory": memory, "equal": equal, "kills": kills}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sequences", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch-sequences", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    parser.add_argument("--scratch", type=Path, help="where artifacts and work go for a while")
    parser.add_argument("--json", type=Path, help="record; the other parts in it are kept")
    args = parser.parse_args()
    found = PARTS[args.part](args.folder, args)
    found["versions"] = {name: version(name) for name in ("torch", "transformers", "safetensors")}
    found["created"] = time.strftime("%Y-%m-%d", time.gmtime())
    print(json.dumps(found, indent=1))
    if args.json:
        record = json.loads(args.json.read_text(encoding="utf-8")) if args.json.exists() else {}
        record[args.part] = found
        temporary = args.json.with_suffix(".part")
        temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        temporary.replace(args.json)
    raise SystemExit(0 if found["passed"] else 1)


if __name__ == "__main__":
    main()
