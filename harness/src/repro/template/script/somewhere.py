# What one rank alone must raise.
mark("moves made")
hold("moves made", STAYING)
problems.extend(trouble for trouble in elsewhere if not side.check([f"kept {trouble.split(':')[0]}"]))
