
rank = int(os.environ["RANK"])
problems = []
doing = "init_process_group"


def say(text):
    sys.stdout.write(f"rank {rank}: {text}\n")
    sys.stdout.flush()


def fail():
    """Ends this rank. torchrun ends all as soon as one fails: let the others speak first."""
    for problem in problems:
        say(f"FAILED: {problem}")
    time.sleep(3)
    os._exit(1)


def hang():
    with tempfile.TemporaryFile("w+") as told:
        faulthandler.dump_traceback(told)
        told.seek(0)
        line = told.read().split("\n\n")[-1].partition(f'{__file__}", line ')[2].split(" ")[0]
    problems.append(f"hangs: still in {doing} after {DEADLINE} s, in line {line}")
    fail()


watchdog = threading.Timer(DEADLINE, hang)
watchdog.daemon = True
watchdog.start()
