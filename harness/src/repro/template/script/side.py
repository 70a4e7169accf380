

# Ranks keep in step over a store of their own, one port after the job's.
port = int(os.environ["MASTER_PORT"])
side = dist.TCPStore(os.environ["MASTER_ADDR"], port + 1, is_master=rank == HOST, wait_for_workers=False)


def mark(name):
    side.set(f"{name} {rank}", "here")


def hold(name, ranks):
    """Waits until these ranks have marked the name."""
    side.wait([f"{name} {other}" for other in ranks], timedelta(seconds=DEADLINE))

