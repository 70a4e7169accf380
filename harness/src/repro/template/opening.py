
rank = int(os.environ["RANK"])
problems = []
doing = "init_process_group"


def say(text):
    sys.stdout.write(f"rank {rank}: {text}\n")
    sys.stdout.flush()


def fail():
    """torchrun ends all ranks as soon as one fails: let the others speak first."""
    for problem in problems:
        say(f"FAILED: {problem}")
    time.sleep(3)
    os._exit(1)


def hang():
    problems.append(f"hangs: still in {doing} after {DEADLINE} s")
    fail()


watchdog = threading.Timer(DEADLINE, hang)
watchdog.daemon = True
watchdog.start()
