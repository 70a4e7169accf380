

def together(*bodies):
    """Runs functions on threads of their own, and raises what the first of them raised."""
    errors = []

    def run(body):
        try:
            body()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=[body]) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
