"""`/v1/realtime`: OpenAI's protocol of a conversation, in its GA version."""
