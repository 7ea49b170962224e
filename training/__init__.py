"""Training of what ships (`rehearsal`), and of a small pretrained model (`smollm2`); `stages` runs both."""
