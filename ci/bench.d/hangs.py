"""How good the verdicts on hangs are: what was said of each labelled scenario, against its label."""

import statistics

#: What a healthy scenario is labelled with: a rank is late, and on the way.
HEALTHY = "slow"


def labelled(records):
    """`(id, label, culprits, diagnosis)` of every check that says what must be found."""
    for one in records:
        label = one["type"] == "check" and one["params"].get("hang")
        if label:
            culprits = [int(rank) for rank in one["params"].get("culprit", "").split() if rank]
            yield one["id"], label, culprits, one.get("diagnosis")


class Score:
    """Counts over labelled scenarios."""

    def __init__(self, records):
        self.troubles = self.kinds = self.accused = self.right = self.named = 0
        self.healthy = self.accused_healthy = 0
        self.seconds = []
        self.by_kind = {}
        self.wrong = []
        for check, label, culprits, said in labelled(records):
            is_proved = said is not None and said["confidence"] == "proved"
            if label == HEALTHY:
                self.healthy += 1
                self.accused_healthy += is_proved
                continue
            self.troubles += 1
            seen, hits = self.by_kind.get(label, (0, 0))
            is_kind = is_proved and said["kind"] == label
            is_right = is_proved and said["culprits"] == culprits
            self.by_kind[label] = seen + 1, hits + (is_kind and is_right)
            self.kinds += is_kind
            self.accused += is_proved
            self.right += is_right
            if is_proved:
                self.seconds.append(said["after_s"])
            if not (is_kind and is_right):
                self.wrong.append((check, label, culprits, said and (said["kind"], said["culprits"])))

    @staticmethod
    def share(part, whole):
        return part / whole if whole else 0.0

    @property
    def precision(self):
        return self.share(self.right, self.accused)

    @property
    def recall(self):
        return self.share(self.right, self.troubles)

    def time(self, part):
        """Seconds from the last progress to the verdict; `part` 0.5 is the median."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0

    def table(self):
        """A line for each kind, and for whatever was wrong."""
        lines = ["| kind | scenarios | right |", "|---|---|---|"]
        lines += [f"| {kind} | {seen} | {hits} |" for kind, (seen, hits) in sorted(self.by_kind.items())]
        lines += [f"| healthy, no rank accused | {self.healthy} | {self.healthy - self.accused_healthy} |"]
        lines += [f"wrong: {check}: {label} of {who}, said {said}" for check, label, who, said in self.wrong]
        return "\n".join(lines)


def unlabelled(text):
    """A case without its labels: nothing but PyTorch ends its hangs."""
    return "".join(line for line in text.splitlines(True) if not line.strip().startswith("hang:"))


def own_errors(records, names, deadline):
    """What becomes of the same scenarios with PyTorch's own error as the only verdict: seconds until the last rank has
    raised, how many were over the deadline, and how many ended in silence."""
    seconds, never, silent = [], 0, 0
    for one in records:
        if one["type"] != "check" or one["params"].get("script") not in names:
            continue
        if one["outcome"] == "pass":
            silent += 1
        elif one["outcome"] == "hang":
            never += 1
        elif one["outcome"] != "not-run":
            seconds.append(min(one["duration_us"] / 1e6, deadline))
    return (statistics.median(seconds) if seconds else 0.0), len(seconds), never, silent
