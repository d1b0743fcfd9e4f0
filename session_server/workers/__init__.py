"""Several processes for connections and media, in front of one engine host.

`supervisor` is the parent: it has the engine host and starts the workers. `worker` is a child: an `http.http_server` whose host is at
the other end of a `link`, a Unix socket pair. What crosses it are the messages of `host.messages` and those of `control`.
"""
