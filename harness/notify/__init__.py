"""Messages to chats, mailboxes and webhooks, the channels of `notify` in devices.yaml."""
