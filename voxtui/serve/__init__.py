"""`voxtui serve`: speech to text and text to speech for other programs, with OpenAI's API."""
