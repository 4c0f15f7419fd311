"""The `bench` fixture: sessions, and the deployment of what a case needs."""
