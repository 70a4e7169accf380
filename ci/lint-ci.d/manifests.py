"""Checks manifests of Kubernetes without a cluster: `manifests.py FILE...`.

Kinds of Kubernetes itself are held against its published JSON schemas, strictly; JobSet and TrainJob against Kubeflow's
own models of them. A field that a schema or model does not know is an error, as it is a misspelt one. Each document is
checked once more with a field misspelt, which must be found.
"""

import copy
import sys

import kubernetes_validate
import yaml
from kubeflow_trainer_api import models

#: The version of Kubernetes whose schemas are used.
VERSION = "1.31"
#: Kinds that are not Kubernetes' own.
MODELS = {"JobSet": models.JobsetV1alpha2JobSet, "TrainJob": models.TrainerV1alpha1TrainJob}


def unknown(given, known, at=""):
    """Returns the paths of fields that are unknown or have another value than expected."""
    if isinstance(given, dict):
        lost = [f"{at}.{name}" for name in given if not isinstance(known, dict) or name not in known]
        inner = [unknown(given[name], known[name], f"{at}.{name}") for name in given if f"{at}.{name}" not in lost]
        return lost + sum(inner, [])
    if isinstance(given, list):
        pairs = enumerate(zip(given, known, strict=True))
        return sum((unknown(one, other, f"{at}[{index}]") for index, (one, other) in pairs), [])
    return [] if given == known else [at]


def faults(document):
    """Returns the problems of a document."""
    kind = document["kind"]
    try:
        if kind in MODELS:
            return unknown(document, MODELS[kind].from_dict(copy.deepcopy(document)).to_dict())
        kubernetes_validate.validate(document, VERSION, strict=True)
    except Exception as error:
        return [str(error).splitlines()[0]]
    return []


def main():
    """Checks all files; returns the exit code."""
    wrong = []
    for path in sys.argv[1:]:
        with open(path) as file:
            documents = [one for one in yaml.safe_load_all(file) if one]
        if not documents:
            wrong.append(f"{path}: there is nothing in it")
        for document in documents:
            wrong += [f"{path}: {document['kind']}: {fault}" for fault in faults(document)]
            misspelt = copy.deepcopy(document)
            misspelt["spec"]["parallelsim"] = 2
            if not faults(misspelt):
                wrong.append(f"{path}: {document['kind']}: a misspelt field is not found")
    print("\n".join(wrong) or "ok", file=sys.stderr if wrong else sys.stdout)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
