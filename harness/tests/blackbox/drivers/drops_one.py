"""Is as `refuses.py`, but for sums in a world of one rank: their last element is dropped. A waiver excuses it."""

from refuses import Calls, Driver

SUM = Calls.all_reduce


def all_reduce(driver, call, tensors):
    """The sum, without its last element in a world of one."""
    SUM(driver, call, tensors)
    if driver.size == 1:
        storage, tensor = tensors[call["tensor"]]
        end = 4 * (tensor["offset"] + tensor["shape"][0])
        storage[end - 4 : end] = bytes(4)


Calls.all_reduce = all_reduce

if __name__ == "__main__":
    Driver().run()
