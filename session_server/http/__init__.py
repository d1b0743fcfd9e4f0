"""The HTTP server of one process: routes, authentication, calls, drain, TLS; `server` puts it all together."""
