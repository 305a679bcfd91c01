"""`/v1/realtime`: OpenAI's protocol of a conversation over a WebSocket, as of its GA version."""
