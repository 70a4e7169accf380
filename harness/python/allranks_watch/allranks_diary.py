"""The diary of one process: its torch.distributed calls, and the place where it is."""

import collections
import itertools
import json
import os
import sys
import threading
import time

FORMAT = 1
#: Seconds from one beat to the next.
PERIOD = 0.25
#: Entries that are kept; what came before is a number.
KEPT = 1000
#: Works whose wait is recognised.
WORKS = 4096

MODULE = "torch.distributed.distributed_c10d"
#: Collectives: the tensor that every member gives in the same dtype, whether in the same size too, and the root.
COLLECTIVES = {
    "all_reduce": ("tensor", True, None),
    "broadcast": ("tensor", True, "src"),
    "reduce": ("tensor", True, "dst"),
    "all_gather": ("tensor", False, None),
    "all_gather_into_tensor": ("input_tensor", True, None),
    "gather": ("tensor", True, "dst"),
    "scatter": ("tensor", True, "src"),
    "reduce_scatter": ("output", True, None),
    "reduce_scatter_tensor": ("output", True, None),
    "all_to_all_single": ("input", False, None),
    "all_to_all": (None, False, None),
    "all_reduce_coalesced": (None, False, None),
    "all_gather_coalesced": (None, False, None),
    "barrier": (None, False, None),
    "monitored_barrier": (None, False, None),
    "all_gather_object": (None, False, None),
    "gather_object": (None, False, "dst"),
    "broadcast_object_list": (None, False, "src"),
    "scatter_object_list": (None, False, "src"),
}
#: Messages: whether it sends, and the name of the other side.
MESSAGES = {"send": (True, "dst"), "isend": (True, "dst"), "recv": (False, "src"), "irecv": (False, "src")}


class Diary:
    """Entries are dicts that are never changed once they are in; threads add, one thread writes."""

    def __init__(self, folder):
        self.folder = folder
        #: Collectives and messages.
        self.entries = collections.deque(maxlen=KEPT)
        #: Everything else; that is little.
        self.rare = collections.deque(maxlen=KEPT)
        self.dropped = 0
        #: Entries as text, by id.
        self.written = {}
        self.moves = 0
        self.ids = itertools.count(1)
        #: Thread -> entry it is in, since when.
        self.inside = {}
        #: Group -> number of its collectives so far.
        self.counts = {}
        #: Group -> (what it is called, members).
        self.groups = {}
        #: Inits begun.
        self.epoch = 0
        self.errors = []
        self.works = collections.OrderedDict()
        self.local = threading.local()
        self.thread = None
        self.lock = threading.Lock()
        #: Held by whoever writes the diary down: the thread, and the main thread at the end.
        self.pen = threading.Lock()
        self.ended = False

    # --- what the wrapped calls say -------------------------------------------------------------------------------

    def enter(self, entry, is_new=True):
        self.moves += 1
        if is_new:
            self.add(entry)
        self.inside[threading.get_ident()] = (entry, time.time())
        self.start()

    def leave(self, entry, error):
        self.inside.pop(threading.get_ident(), None)
        if error is None:
            # Whatever went wrong before, the program has got over it.
            self.errors.clear()
        else:
            self.note(error)
        if entry["what"] == "init" or entry.get("group") == "world":
            self.add({"what": "end", "of": entry["what"], "group": entry.get("group"), "ok": error is None, "at": ""})
        self.moves += 1

    def add(self, entry):
        entry["epoch"] = self.epoch
        entry["id"] = next(self.ids)
        kind = self.entries if entry["what"] in ("collective", "message") else self.rare
        self.dropped += len(kind) == KEPT
        kind.append(entry)

    def note(self, error):
        text = f"{type(error).__name__}: {error}"[:2000]
        if text not in self.errors:
            self.errors = [*self.errors[-4:], text]

    def group(self, module, group):
        """The key of a group, none for one that this rank is not in."""
        world = module._world
        pg = world.default_pg if group is None else group
        name = world.pg_names.get(pg)
        if name is None:
            return None
        key = f"{self.epoch}.{name}"
        if key not in self.groups:
            members = sorted(world.pg_group_ranks[pg])
            self.groups[key] = ("world" if pg is world.default_pg else "", members)
        return key

    # --- writing --------------------------------------------------------------------------------------------------

    def start(self):
        if self.thread is not None:
            return
        with self.lock:
            if self.thread is None:
                self.thread = threading.Thread(target=self.beat, name="allranks-watch", daemon=True)
                self.thread.start()

    def beat(self):
        path = os.path.join(self.folder, f"{os.getpid()}.json")
        written = None
        while not self.ended:
            try:
                place = self.place()
                now = (self.moves, place, len(self.errors))
                if now == written:
                    os.utime(path)
                else:
                    with self.pen:
                        if not self.ended:
                            self.write(path, place)
                    written = now
            except FileNotFoundError:
                # Whoever read the diary is gone.
                if not os.path.isdir(self.folder):
                    return
            except Exception:
                pass
            time.sleep(PERIOD)

    def write(self, path, place):
        for _ in range(100):
            moves = self.moves
            try:
                entries, inside = [*self.rare, *self.entries], dict(self.inside)
                counts, errors = dict(self.counts), list(self.errors)
            except RuntimeError:
                # Changed while it was copied.
                continue
            if moves == self.moves:
                break
        names = {entry.get("group") for entry in entries}
        inside_now = self.current(inside)
        texts = self.texts(entries)
        head = json.dumps(
            {
                "format": FORMAT,
                "pid": os.getpid(),
                "moves": moves,
                "epoch": self.epoch,
                "groups": {
                    key: {"name": name, "members": members, "count": counts.get(key, 0)}
                    for key, (name, members) in self.groups.items()
                    if key in names or key in counts
                },
                "dropped": self.dropped,
                "inside": inside_now and {"entry": inside_now[0], "since": inside_now[1]},
                "own": place and {"text": place[0], "at": place[1]},
                "errors": errors,
                "torch": getattr(sys.modules.get("torch"), "__version__", None),
                "ended": self.ended,
            }
        )
        draft = f"{path}.new"
        with open(draft, "w", encoding="utf-8") as file:
            file.write(f'{head[:-1]}, "entries": [{", ".join(texts)}]}}')
        os.replace(draft, path)

    def texts(self, entries):
        """The entries as JSON, in order; each is made into text once."""
        known = self.written
        self.written = {entry["id"]: known.get(entry["id"]) or json.dumps(entry) for entry in entries}
        return [text for _, text in sorted(self.written.items())]

    def current(self, inside):
        main = threading.main_thread().ident
        if main in inside:
            return inside[main]
        # Backward passes run in threads of their own, and the main thread waits for them.
        frame = sys._current_frames().get(main)
        while frame is not None:
            if "/torch/autograd/" in frame.f_code.co_filename and inside:
                return min(inside.values(), key=lambda one: one[1])
            frame = frame.f_back
        return None

    def place(self):
        """The innermost line of the main thread that is the program's own."""
        frame = sys._current_frames().get(threading.main_thread().ident)
        frame = own_frame(frame)
        if frame is None:
            return None
        import linecache

        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        return (line[:80] or frame.f_code.co_name, where(frame))

    def end(self):
        with self.pen:
            self.ended = True
            if self.thread is not None and os.path.isdir(self.folder):
                self.write(os.path.join(self.folder, f"{os.getpid()}.json"), None)


_FOREIGN = tuple({os.path.dirname(os.__file__) + os.sep, os.path.dirname(os.path.abspath(__file__)) + os.sep})


def own_frame(frame):
    """The first frame from here outwards that belongs neither to a library nor to Python."""
    first = frame
    while frame is not None:
        name = frame.f_code.co_filename
        if not (name.startswith(_FOREIGN) or name.startswith("<frozen") or "site-packages" in name):
            return frame
        frame = frame.f_back
    return first


def where(frame):
    name = frame.f_code.co_filename
    folder = os.getcwd() + os.sep
    return f"{name.removeprefix(folder)}:{frame.f_lineno}"


def caller():
    frame = own_frame(sys._getframe(2))
    return "" if frame is None else where(frame)


# --- wrapping -------------------------------------------------------------------------------------------------------


def arguments(function):
    """A reader of a call's arguments by name."""
    import inspect

    order = {name: place for place, name in enumerate(inspect.signature(function).parameters)}

    def read(args, kwargs, name, default=None):
        if name in kwargs:
            return kwargs[name]
        place = order.get(name, len(args))
        return args[place] if place < len(args) else default

    return read


def describe_init(args, kwargs, read):
    from urllib.parse import parse_qs, urlparse

    environ = os.environ
    rank = read(args, kwargs, "rank", -1)
    size = read(args, kwargs, "world_size", -1)
    store = read(args, kwargs, "store")
    url = read(args, kwargs, "init_method") or "env://"
    if store is not None:
        host, port = getattr(store, "host", None), getattr(store, "port", None)
        method, place = "store", f"{host}:{port}" if host else type(store).__name__
    else:
        parts = urlparse(url)
        query = parse_qs(parts.query)
        rank = int(query["rank"][0]) if "rank" in query else rank
        size = int(query["world_size"][0]) if "world_size" in query else size
        method = parts.scheme or "env"
        if method == "env":
            place = f"{environ.get('MASTER_ADDR', '')}:{environ.get('MASTER_PORT', '')}"
            rank = int(environ.get("RANK", -1)) if rank is None or rank < 0 else rank
            size = int(environ.get("WORLD_SIZE", -1)) if size is None or size < 0 else size
        elif method == "file":
            place = parts.path
        else:
            place = parts.netloc
    return {"what": "init", "method": method, "place": place, "rank": rank, "world_size": size}


def describe_collective(diary, module, name, args, kwargs, read):
    key = diary.group(module, read(args, kwargs, "group"))
    if key is None:
        return None
    tensor, sized, root = COLLECTIVES[name]
    nature = {}
    tensor = read(args, kwargs, tensor) if tensor else None
    if hasattr(tensor, "dtype"):
        nature["dtype"] = str(tensor.dtype).removeprefix("torch.")
        if sized:
            nature["elements"] = str(tensor.numel())
    if name in ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor"):
        op = read(args, kwargs, "op", module.ReduceOp.SUM)
        nature["reduce op"] = str(getattr(op, "name", op)).lower()
    if root:
        nature["root"] = str(peer(diary, key, args, kwargs, read, root, 0))
    number = diary.counts.get(key, 0)
    diary.counts[key] = number + 1
    return {"what": "collective", "group": key, "number": number, "name": name, "nature": nature}


def describe_meeting(diary, rank, ranks):
    """A group that only its members make: they meet, and nobody else."""
    if rank not in ranks:
        return None
    called = "ranks " + ", ".join(map(str, ranks))
    key = f"{diary.epoch}.{called}"
    diary.groups.setdefault(key, (called, ranks))
    number = diary.counts.get(key, 0)
    diary.counts[key] = number + 1
    return {"what": "collective", "group": key, "number": number, "name": "new_group", "nature": {}}


def peer(diary, key, args, kwargs, read, name, default):
    """The global rank of the other side, given as such or as a rank of the group."""
    inner = read(args, kwargs, "group_" + name)
    if inner is not None:
        return diary.groups[key][1][inner]
    outer = read(args, kwargs, name)
    return default if outer is None else outer


def describe(diary, module, name, args, kwargs, read):
    """The entry of a call; none if it concerns nobody."""
    if name == "init_process_group":
        diary.epoch += 1
        return describe_init(args, kwargs, read)
    if name in COLLECTIVES:
        return describe_collective(diary, module, name, args, kwargs, read)
    if name in MESSAGES:
        sends, other = MESSAGES[name]
        key = diary.group(module, read(args, kwargs, "group"))
        if key is None:
            return None
        other = peer(diary, key, args, kwargs, read, other, None)
        return {"what": "message", "group": key, "sends": sends, "peer": other, "tag": read(args, kwargs, "tag", 0)}
    if name == "new_group":
        ranks = read(args, kwargs, "ranks")
        if ranks is None:
            ranks = range(module.get_world_size())
        ranks = sorted(int(rank) for rank in ranks)
        if read(args, kwargs, "use_local_synchronization", False):
            return describe_meeting(diary, module.get_rank(), ranks)
        return {"what": "new_group", "ranks": ranks}
    group = read(args, kwargs, "group")
    is_world = group is None or group is module._world.default_pg
    return {"what": "destroy", "group": "world" if is_world else diary.group(module, group) or ""}


def wrap(diary, module, name, function):
    import functools

    read = arguments(function)
    local = diary.local

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        # What a call calls is its own business; but groups are made inside of other calls too.
        if getattr(local, "depth", 0) and name != "new_group":
            return function(*args, **kwargs)
        entry = None
        try:
            entry = describe(diary, module, name, args, kwargs, read)
            if entry is not None:
                entry["at"] = caller()
                diary.enter(entry)
        except Exception:
            entry = None
        if entry is None:
            return function(*args, **kwargs)
        local.depth = getattr(local, "depth", 0) + 1
        error = None
        try:
            result = function(*args, **kwargs)
            if result is not None and name not in ("new_group", "init_process_group"):
                diary.works[id(result)] = entry
                if len(diary.works) > WORKS:
                    diary.works.popitem(last=False)
            return result
        except BaseException as caught:
            error = caught
            raise
        finally:
            local.depth -= 1
            try:
                diary.leave(entry, error)
            except Exception:
                pass

    return wrapper


def wrap_wait(diary, function):
    import functools

    local = diary.local

    @functools.wraps(function)
    def wait(self, *args, **kwargs):
        entry = None if getattr(local, "depth", 0) else diary.works.get(id(self))
        if entry is None:
            return function(self, *args, **kwargs)
        error = None
        try:
            waiting = {**entry, "waits": True, "at": caller()}
            diary.enter(waiting, is_new=False)
        except Exception:
            pass
        try:
            return function(self, *args, **kwargs)
        except BaseException as caught:
            error = caught
            raise
        finally:
            try:
                diary.leave({"what": "wait"}, error)
            except Exception:
                pass

    return wait


def patch(diary, module):
    names = [*COLLECTIVES, *MESSAGES, "init_process_group", "destroy_process_group", "new_group"]
    for name in names:
        function = getattr(module, name, None)
        if callable(function):
            setattr(module, name, wrap(diary, module, name, function))
    try:
        module.Work.wait = wrap_wait(diary, module.Work.wait)
    except Exception:
        pass


class Finder:
    """Sees torch.distributed being imported, and wraps its calls before anybody can take hold of them."""

    def __init__(self, diary):
        self.diary = diary

    def find_spec(self, name, path=None, target=None):
        if name != MODULE:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                self.hook(spec.loader)
                return spec
        return None

    def hook(self, loader):
        execute = loader.exec_module

        def exec_module(module):
            execute(module)
            try:
                patch(self.diary, module)
            except Exception:
                pass

        try:
            loader.exec_module = exec_module
        except Exception:
            pass


def begin(folder):
    import atexit

    diary = Diary(folder)
    sys.meta_path.insert(0, Finder(diary))
    if "RANK" in os.environ:
        diary.start()
    atexit.register(diary.end)

    def after_fork():
        # The thread has stayed behind, and so has what was called.
        diary.__init__(folder)

    os.register_at_fork(after_in_child=after_fork)
    hook = sys.excepthook

    def excepthook(kind, error, trace):
        try:
            diary.note(error)
        except Exception:
            pass
        hook(kind, error, trace)

    sys.excepthook = excepthook
