"""What a user can do, written once for every front end.

`user_session.UserSession` drives an engine and needs no device: frames may come from any source.
`local_session.LocalSession` adds what a front end on this machine offers: the microphone, devices,
clips, settings, the record. Both are used on the front end's thread, which passes each event to
`take` before it shows it.
"""
