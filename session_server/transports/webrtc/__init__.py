"""The WebRTC transport (on aiortc): audio over RTP both ways, events over a data channel. One call is one session."""
