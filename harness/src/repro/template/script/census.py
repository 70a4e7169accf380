

def living_threads():
    """The threads that do not end: one that was joined is listed for a moment longer."""
    living = 0
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/stat") as stat:
                flags = int(stat.read().rpartition(")")[2].split()[6])
        except OSError:
            continue
        living += not flags & 0x4  # PF_EXITING of linux/sched.h
    return living


def census():
    """What this process holds; its memory is without pages of files, where the kernel tells them apart."""
    gc.collect()
    with open("/proc/self/status") as lines:
        status = dict(line.split(":", 1) for line in lines)
    own = ["RssAnon", "RssShmem", "VmSwap"] if "RssAnon" in status else ["VmRSS"]
    with open("/proc/self/maps") as maps:
        shared = sum("/dev/shm/" in line for line in maps)
    with open(f"/proc/self/task/{os.getpid()}/children") as children:
        processes = len(children.read().split())
    return {
        "files": len(os.listdir("/proc/self/fd")),
        "threads": living_threads(),
        "shared_memory": shared,
        "processes": processes,
        "memory_mib": sum(int(status[part].split()[0]) for part in own) // 1024,
    }


def steady(before, after, **allowed):
    for field, more in allowed.items():
        if after[field] > before[field] + more:
            problems.append(f"holds {after[field]} {field} after {before[field]}; {more} more are allowed")
