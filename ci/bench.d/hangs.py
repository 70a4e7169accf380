"""Scores hang verdicts: compares the verdict on each labelled scenario with its label."""

import statistics

#: The label of healthy scenarios, in which a rank is late but makes progress.
HEALTHY = "slow"


def labelled(records):
    """Returns `(id, label, culprits, diagnosis)` of every check that expects a hang verdict."""
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
        """Returns a line for each kind, and for each wrong verdict."""
        lines = ["| kind | scenarios | right |", "|---|---|---|"]
        lines += [f"| {kind} | {seen} | {hits} |" for kind, (seen, hits) in sorted(self.by_kind.items())]
        lines += [f"| healthy, no rank accused | {self.healthy} | {self.healthy - self.accused_healthy} |"]
        lines += [f"wrong: {check}: {label} of {who}, said {said}" for check, label, who, said in self.wrong]
        return "\n".join(lines)


def unlabelled(text):
    """Returns a case without its labels, so that only PyTorch ends its hangs."""
    return "".join(line for line in text.splitlines(True) if not line.strip().startswith("hang:"))


def own_errors(records, names, deadline):
    """Scores PyTorch's own errors on the same scenarios: seconds until the last rank has raised, the number over the
    deadline, and the number that ended without an error."""
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
