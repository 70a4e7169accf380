"""Never comes to its hello, and uses the processor for a little of the time, as on a machine that is far too busy."""

import time

while True:
    worked = time.process_time() + 0.12
    while time.process_time() < worked:
        pass
    time.sleep(1.9)
