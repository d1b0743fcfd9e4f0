"""What carries virtual users: a simulation, WebSockets, calls over WebRTC."""
