# What one rank alone must raise.
mark("moves made")
hold("moves made", STAYING)
problems.extend(problem for problem in elsewhere if not side.check([f"kept {problem.split(':')[0]}"]))
