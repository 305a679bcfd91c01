"""The verbs of the user, written once for every front end.

`user_session.UserSession` drives an engine and needs no device: frames may come from any source.
`local_session.LocalSession` adds what a front end on this machine offers: the microphone, devices,
clips, settings, the record. Both belong to one thread, the front end's. It passes each event to
`take` before it shows it.
"""
