
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
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame.f_code.co_filename != __file__ and frame.f_back:
        frame = frame.f_back
    problems.append(f"hangs: still in {doing} after {DEADLINE} s, in line {frame.f_lineno}")
    fail()


watchdog = threading.Timer(DEADLINE, hang)
watchdog.daemon = True
watchdog.start()
