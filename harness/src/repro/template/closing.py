
if problems:
    fail()
say("as expected")
doing = "destroy_process_group"
dist.destroy_process_group()
watchdog.cancel()
