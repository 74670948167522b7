"""How long a rewind of 1,000 batches takes, and what it depends on: the files that move, not how large they are.

    python bench/rewind_speed.py [FOLDER]

Two operators with two state partitions each, a change of state for every batch, a snapshot for every tenth, and a
file source; all with the checksum files that Hadoop keeps on a local disk.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from headwater.checkpoint.files import LocalFiles
from headwater.timemachine.rewind import plan_rewind
from headwater.timemachine.undo import plan_undo

RESULT = Path(__file__).parent / "results" / "rewind_speed.json"
LIMIT_SECONDS = 2.0
ROUNDS = 3
CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


def write_checkpoint(folder: Path, batches: int, state_bytes: int) -> None:
    """A checkpoint as Spark lays it out; what is in state files does not matter to a rewind."""
    _put(folder / "metadata", b'{"id":"00000000-0000-0000-0000-000000000000"}')
    state = bytes(state_bytes)
    seen = []
    for batch in range(batches):
        plan = {"batchWatermarkMs": 0, "batchTimestampMs": 1_700_000_000_000 + 1000 * batch, "conf": CONF}
        _put(folder / f"offsets/{batch}", f'v1\n{json.dumps(plan)}\n{{"logOffset":{batch}}}'.encode())
        _put(folder / f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')
        seen.append(json.dumps({"path": f"file:///in/{batch:06d}.json", "timestamp": batch, "batchId": batch}))
        compacted = (batch + 1) % 10 == 0
        name, lines = (f"{batch}.compact", seen) if compacted else (str(batch), seen[-1:])
        _put(folder / "sources/0" / name, "\n".join(["v1", *lines]).encode())
        for operator in range(2):
            for partition in range(2):
                place = folder / f"state/{operator}/{partition}"
                _put(place / f"{batch + 1}.changelog", state)
                if batch % 10 == 0:
                    _put(place / f"{batch + 1}.zip", state)


def _put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.with_name(f".{path.name}.crc").write_bytes(b"crc\0")


def measure(folder: Path, batches: int, undone: int, state_bytes: int) -> dict[str, float]:
    """The median of a few rounds, each with an undo that puts everything back."""
    write_checkpoint(folder, batches, state_bytes)
    files = LocalFiles(folder)
    planning, applying, undoing, working = [], [], [], []
    moved = 0
    for _ in range(ROUNDS):
        started, busy = time.perf_counter(), time.process_time()
        plan = plan_rewind(files, to=batches - 1 - undone)
        planned = time.perf_counter()
        plan.apply()
        applied = time.perf_counter()
        working.append(time.process_time() - busy)
        plan_undo(files).apply()
        undoing.append(time.perf_counter() - applied)
        planning.append(planned - started)
        applying.append(applied - planned)
        moved = len(plan.set_aside)
    shutil.rmtree(folder)
    return {
        "batches": batches,
        "undone": undone,
        "state_file_bytes": state_bytes,
        "files_moved": moved,
        "plan_seconds": round(statistics.median(planning), 3),
        "apply_seconds": round(statistics.median(applying), 3),
        "rewind_seconds": round(statistics.median(planning) + statistics.median(applying), 3),
        "rewind_cpu_seconds": round(statistics.median(working), 3),
        "undo_seconds": round(statistics.median(undoing), 3),
    }


def main() -> int:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as place:
        root = Path(place)
        found = [
            measure(root / "small", 1100, 1000, 100),
            measure(root / "large", 1100, 1000, 100_000),
            measure(root / "few", 1100, 100, 100),
        ]
    for row in found:
        print(
            f"{row['undone']:>5} batches, {row['files_moved']:>6} files of {row['state_file_bytes']:>7,} bytes: rewind "
            f"{row['rewind_seconds']:.2f} s (plan {row['plan_seconds']:.2f}, CPU {row['rewind_cpu_seconds']:.2f}), "
            f"undo {row['undo_seconds']:.2f} s"
        )
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps({"limit_seconds": LIMIT_SECONDS, "measured": found}, indent=1) + "\n")
    worst = max(row["rewind_seconds"] for row in found)
    print(f"rewind: 1,000 batches in {worst:.2f} s at most (limit {LIMIT_SECONDS:.0f} s)")
    return 0 if worst <= LIMIT_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
