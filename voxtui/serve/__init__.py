"""`voxtui serve`: speech to text and text to speech for other programs, in OpenAI's shapes."""
