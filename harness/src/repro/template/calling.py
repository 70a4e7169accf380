doing = "the call"
note = threading.Timer(1.5, say, ["in the call for 1.5 s"])
note.daemon = True
note.start()
