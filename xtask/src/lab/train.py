"""A member of the lab's training job in PyTorch: TCPStore, then Gloo all-reduces until told to stop.

Writes the same file as the lab's own member, less the connections: PyTorch does not count them.
"""
import datetime
import json
import os
import sys
import time

import torch
import torch.distributed as dist

name, rank, world, host, port, truth_path, stop_path, elements, period = sys.argv[1:]
rank, world, port, elements, period = int(rank), int(world), int(port), int(elements), float(period)


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat().replace("+00:00", "Z")


master = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
connects = {"tried": 0, "succeeded": 0, "failed": {}, "first": now(), "last": now()}
truth = {
    "pod": name, "rank": rank, "started": now(), "ended": None, "error": None,
    "steps": 0, "wrong_sums": 0, "connections": [], "connects": {} if rank == 0 else {master: connects},
}


def write():
    with open(truth_path + ".part", "w") as file:
        json.dump(truth, file)
    os.rename(truth_path + ".part", truth_path)


def meet():
    """Connects again and again, as torchrun does."""
    while not os.path.exists(stop_path):
        connects["tried"] += 1
        connects["last"] = now()
        try:
            timeout = datetime.timedelta(seconds=60 if rank == 0 else 2)
            store = dist.TCPStore(host, port, world, rank == 0, timeout, wait_for_workers=False)
            connects["succeeded"] += 1
            write()
            return store
        except Exception as error:  # PyTorch raises RuntimeError, whatever went wrong
            kind = type(error).__name__
            connects["failed"][kind] = connects["failed"].get(kind, 0) + 1
            write()
            time.sleep(0.2)
    return None


write()
store = meet()
if store is not None:
    store.set_timeout(datetime.timedelta(seconds=120))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    stopping = False
    while not stopping:
        start = time.monotonic()
        numbers = torch.full((elements,), float(rank))
        numbers[0] = float(os.path.exists(stop_path))
        dist.all_reduce(numbers)
        stopping = numbers[0].item() > 0
        right = bool((numbers[1:] == world * (world - 1) / 2).all())
        truth["steps" if right else "wrong_sums"] += 1
        write()
        time.sleep(max(0.0, period - (time.monotonic() - start)))
    # Rank 0 keeps the store: it leaves last.
    store.add("left", 1)
    while rank == 0 and store.add("left", 0) < world:
        time.sleep(0.02)
truth["ended"] = now()
write()
