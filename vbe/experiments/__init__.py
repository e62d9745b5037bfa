"""The paper's experiments: one file per figure. Each says what runs, what the paper claims of it, and how it is drawn."""
